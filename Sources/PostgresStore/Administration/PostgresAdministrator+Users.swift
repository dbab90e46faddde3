#if PostgreSQL
internal import Glibc
internal import System
package import TokenStore

extension PostgresAdministrator: UserAdministrator {
    package func sessionKey(of secret: [UInt8]) throws(StoreError) -> SessionKey {
        try coding { (coder) throws(SealingError) in try coder.sessionKey(of: secret.span) }
    }

    private func coding<Value>(
        _ body: (inout RowCoder) throws(SealingError) -> Value
    ) throws(StoreError) -> Value {
        var coder = RowCoder(state.sealing)
        do throws(SealingError) {
            return try body(&coder)
        } catch {
            throw .sealing(error)
        }
    }

    package func createSession(_ request: NewSession) async throws(StoreError) -> CreatedSession {
        let made = try coding { (coder) throws(SealingError) in try coder.row(of: UserSession(request), request.key) }
        let row = StoredSession(
            key: made.key, id: made.id.bytes, userKey: made.userKey, keyNumber: made.keyNumber, user: made.user,
            createdAt: made.createdAt, expiresAt: made.expiresAt, usedAt: made.usedAt,
            number: state.versions.next().rawValue)
        let ended = try await sessions.performOnThread(within: Self.stepTime, repeats: true) {
            (session, deadline) throws(PostgresError) in
            try session.transaction(until: deadline) { () throws(PostgresError) in
                let rows = SessionRows(session, until: deadline)
                try rows.add([row])
                return try rows.remove(try rows.keys(ofUser: row.userKey, exceptNewest: max(1, request.perUser)))
            }
        }
        return CreatedSession(id: request.id, expiresAt: request.expiresAt, ended: ended)
    }

    package func sessions(of user: [UInt8]) async throws(StoreError) -> [UserSession] {
        let keys = try keys(of: [user])
        let rows = try await reading { (session, deadline) throws(PostgresError) in
            try SessionRows(session, until: deadline).rows(ofUser: keys[0], at: Int64(time(nil)))
        }
        return try coding { (coder) throws(SealingError) in
            try rows.map { (row) throws(SealingError) in try coder.open(row).session }
        }
    }

    package func endSession(id: SessionID) async throws(StoreError) -> EndedSession? {
        let ended = try await sessions.onThread { () throws(StoreError) in
            // Kept beyond the first attempt: if that has ended the session and its outcome is lost, the second finds none.
            var found: StoredSession?
            return try sessions.perform(within: Self.stepTime, repeats: true) {
                (session, deadline) throws(PostgresError) -> StoredSession? in
                let rows = SessionRows(session, until: deadline)
                let isRepeated = found != nil
                if found == nil { found = try rows.row(of: id) }
                guard let row = found else { return nil }
                let count = try session.transaction(until: deadline) { () throws(PostgresError) in
                    try rows.remove([row.key])
                }
                return count > 0 || isRepeated ? row : nil
            }
        }
        guard let ended else { return nil }
        let opened = try? coding { (coder) throws(SealingError) in try coder.open(ended) }
        return EndedSession(id: id, user: opened?.session.user)
    }

    package func endSessions(of user: [UInt8]) async throws(StoreError) -> Int {
        let key = try keys(of: [user])[0]
        return try await sessions.onThread { () throws(StoreError) in
            var former: Int?
            return try sessions.perform(within: Self.stepTime, repeats: true) {
                (session, deadline) throws(PostgresError) in
                let rows = SessionRows(session, until: deadline)
                // For the case that the outcome of the removal is lost, and it is repeated.
                let before = if let former { former } else { try rows.count(ofUser: key) }
                defer { former = before }
                let count = try session.transaction(until: deadline) { () throws(PostgresError) in
                    try rows.remove(ofUser: key)
                }
                return former == nil ? count : before
            }
        }
    }

    package func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure {
        let keys = try keys(of: [user])
        return try await sessions.onThread { () throws(StoreError) in
            try TokenRemoval(keys, state).erase(sessions)
        }
    }
}
#endif
