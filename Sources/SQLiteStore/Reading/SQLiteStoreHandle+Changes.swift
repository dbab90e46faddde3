import Cryptography
import TokenStore

/// What a handle asks the writer to change.
extension SQLiteStoreHandle {
    /// Bytes of memory that a change of sessions takes while it waits, besides what it holds.
    static let waitingBytes = 512

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        gather(Token.waitingBytes(id: id, info: tokenInfo), .stored(completion)) { (coder) throws(SealingError) in
            var row = try coder.row(of: Token(id: id, info: tokenInfo), writtenAt: writtenAt ?? unixTime)
            if condition.isEmpty { return .store(row) }
            row.keepsNewer = condition.keepsNewer
            return .storeIf(row, coder.condition(condition))
        }
    }

    func remove(
        _ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>
    ) {
        gather(
            Token.waitingBytes(id: id, info: []),
            .other(completion) { if case .removed(let wasThere) = $0 { wasThere } else { nil } }
        ) { coder in
            var key = RowKey()
            coder.key(of: id, into: &key)
            return .remove(key, id: id, coder.condition(condition))
        }
    }

    // MARK: - Sessions

    func sessionKey(of secret: Span<UInt8>) -> SessionKey { coder.sessionKey(of: secret) }

    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        try reading(key, among: database.state.damagedSessions) { (reader) throws(StoreError) in
            try reader.findSession(key)
        }
    }

    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        do {
            let sessions = try reading(user, among: database.state.damagedSessions) { (reader) throws(StoreError) in
                try reader.sessions(of: user)
            }
            completion(.success(sessions))
        } catch {
            completion(.failure(error))
        }
    }

    func createSession(
        _ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>
    ) {
        gather(Token.waitingBytes(id: session.user, info: session.user), .count(completion)) {
            (coder) throws(SealingError) in
            .createSession(try coder.row(of: session, key), perUser: perUser)
        }
    }

    func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        gather(
            Self.waitingBytes, .other(completion) { if case .ended(let session) = $0 { .some(session) } else { nil } }
        ) { _ in .endSession(id) }
    }

    func endSessions(of user: [UInt8], completion: Completion<Int>) {
        gather(Self.waitingBytes + user.count, .count(completion)) { coder in
            var key = RowKey()
            coder.key(of: user, into: &key)
            return .endSessions(userKey: key.bytes)
        }
    }
}

extension RowCoder {
    /// A condition in terms of rows.
    fileprivate mutating func condition(_ condition: WriteCondition) -> RowCondition {
        RowCondition(match: condition.match, session: condition.session.map { rowKey(of: $0) })
    }
}
