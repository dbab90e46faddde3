internal import Cryptography
package import TokenStore

extension SQLiteAdministrator: UserAdministrator {
    package func sessionKey(of secret: [UInt8]) throws(StoreError) -> SessionKey {
        do throws(SealingError) {
            var coder = RowCoder(store.state.sealing)
            return try coder.sessionKey(of: secret.span)
        } catch {
            throw .sealing(error)
        }
    }

    package func createSession(_ request: NewSession) async throws(StoreError) -> CreatedSession {
        let outcome = try await commit { (coder) throws(SealingError) in
            .createSession(try coder.row(of: UserSession(request), request.key), perUser: request.perUser)
        }
        guard case .created(let session) = outcome else { preconditionFailure("a session was created") }
        return session
    }

    package func sessions(of user: [UInt8]) throws(StoreError) -> [UserSession] {
        try reader().sessions(of: user)
    }

    package func endSession(id: SessionID) async throws(StoreError) -> EndedSession? {
        guard case .ended(let session) = try await commit({ (_) throws(SealingError) in .endSession(id) }) else {
            preconditionFailure("a session was ended")
        }
        return session
    }

    package func endSessions(of user: [UInt8]) async throws(StoreError) -> Int {
        let outcome = try await commit { (coder) throws(SealingError) in
            var key = RowKey()
            let index = try coder.key(of: user, into: &key).identity
            return .endSessions(userKey: key.bytes, index: index)
        }
        guard case .endedAll(let count) = outcome else { preconditionFailure("sessions were ended") }
        return count
    }

    package func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure {
        try await eraseUser(user)
    }

    /// Makes a change and waits until it is durable.
    private func commit(
        _ make: (inout RowCoder) throws(SealingError) -> Change
    ) async throws(StoreError) -> ChangeOutcome {
        let change: Change
        do throws(SealingError) {
            var coder = RowCoder(store.state.sealing)
            change = try make(&coder)
        } catch {
            throw .sealing(error)
        }
        return try await store.writerThread.commit([change])[0].get()
    }
}
