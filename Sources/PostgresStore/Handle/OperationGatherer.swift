#if PostgreSQL
import Cryptography
import Synchronization
import TokenStore

/// A handle that makes operations of the requests of its thread, and gathers them for a thread that has connections.
protocol OperationGatherer: StoreHandle {
    var state: PostgresState { get }
    var options: PostgresOptions { get }
    /// For rows that are made on this handle's thread.
    var rows: RowAccess { get }
    /// For what operations do on the thread that sends them.
    var senderRows: RowAccess { get }

    /// Gathers an operation that was admitted, to be sent at the end of the turn.
    func gather(_ operation: Operation)

    /// A completion for the thread that sends the operation, which calls this one on this handle's thread.
    func forSender<Value>(_ completion: Completion<Value>) -> Completion<Value>
}

extension OperationGatherer {
    var timeLimit: Duration? { options.timeout }

    /// Counts a new operation; throws if too many are waiting.
    func admit(_ bytes: Int) throws(StoreError) {
        if let refusal = state.refusal { throw refusal }
        guard state.waitingRequests.add(1, ordering: .relaxed).newValue <= options.requestLimit else {
            state.waitingRequests.subtract(1, ordering: .relaxed)
            state.count { $0.remote.refusedByCount += 1 }
            throw .overloaded(.requests(options.requestLimit))
        }
        guard state.waitingBytes.add(bytes, ordering: .relaxed).newValue <= state.queueLimit else {
            release(bytes)
            state.count { $0.remote.refusedByBytes += 1 }
            throw .overloaded(.queue(bytes: state.queueLimit))
        }
    }

    func release(_ bytes: Int) {
        state.waitingRequests.subtract(1, ordering: .relaxed)
        state.waitingBytes.subtract(bytes, ordering: .relaxed)
    }
}

/// The requests of clients.
extension OperationGatherer {
    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        let bytes = id.count + Operation.waitingBytes
        try gather(bytes) {
            FetchOperation(
                senderRows, userKey(id), upTo: limit, session: rowKey(of: session), bytes: bytes,
                completion: forSender(makeCompletion()))
        }
        return nil
    }

    var unixTime: Int64 { state.clock.unixTime }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        write(
            bytes: Token.waitingBytes(id: id, info: tokenInfo), if: condition, completion.taking { $0.version }
        ) { () throws(SealingError) in
            let row = try rows.coder.row(of: Token(id: id, info: tokenInfo), writtenAt: writtenAt ?? unixTime)
            return (row.key.bytes, row)
        }
    }

    func remove(_ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>) {
        write(bytes: Token.waitingBytes(id: id, info: []), if: condition, completion.taking { $0.isFound }) {
            (userKey(id), nil)
        }
    }

    private func write(
        bytes: Int, if condition: WriteCondition, _ completion: Completion<WriteOperation.Written>,
        _ make: () throws(SealingError) -> (key: [UInt8], row: Row?)
    ) {
        gather(bytes, for: completion) { (completion) throws(SealingError) in
            let session = rowKey(of: condition.session)
            let (key, row) = try make()
            return WriteOperation(
                senderRows, row, under: key, if: condition, session: session, bytes: bytes, completion: completion)
        }
    }

    /// Like `gather`; the completion gets the error if the operation is not gathered.
    private func gather<Value>(
        _ bytes: Int = Operation.waitingBytes, for completion: Completion<Value>,
        _ make: (Completion<Value>) throws(SealingError) -> Operation
    ) {
        do {
            try gather(bytes) { () throws(SealingError) in try make(forSender(completion)) }
        } catch {
            completion(.failure(error))
        }
    }

    /// Makes an operation and gathers it, if it is admitted.
    private func gather(_ bytes: Int, _ make: () throws(SealingError) -> Operation) throws(StoreError) {
        try admit(bytes)
        do {
            gather(try make())
        } catch {
            release(bytes)
            throw .sealing(error)
        }
    }

    // MARK: - Sessions

    func sessionKey(of secret: Span<UInt8>) throws(StoreError) -> SessionKey {
        // Until the store is open, there are no keys.
        if let refusal = state.refusal { throw refusal }
        return rows.coder.sessionKey(of: secret)
    }

    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        try gather(Operation.waitingBytes) {
            let parameters: Parameters = [.bytea(rows.coder.rowKey(of: key)), .bigint(rows.unixTime)]
            return SessionOperation(
                senderRows, FoundSession.nothing, isWrite: false, [(.findSession, parameters)],
                forSender(makeCompletion())
            ) { [senderRows] (result, _, found) throws(StoreError) in
                found = .nothing
                guard result.rowCount > 0 else { return }
                let row = SessionRow(result, row: 0)
                let opened = try senderRows.opened(row)
                // If the row has another key than the one it was found by, it was tampered with.
                guard opened.key == key else { throw .sealing(.tampered(keyNumber: row.keyNumber)) }
                found = .found(opened.session)
            }
        }
        return nil
    }

    func noteUse(of key: SessionKey, at unixTime: Int64) {
        // If the use cannot be noted, it is lost.
        let completion = Completion<Void> { _ in }
        gather(for: completion) { completion in
            let parameters: Parameters = [.bytea(rows.coder.rowKey(of: key)), .bigint(unixTime)]
            return SessionOperation(senderRows, (), skipsLocked: true, [(.noteUse, parameters)], completion) {
                _, _, _ in
            }
        }
    }

    func createSession(
        _ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>
    ) {
        gather(for: completion) { (completion) throws(SealingError) in
            let number = rows.state.versions.next().rawValue
            let row = try rows.coder.row(of: session, key, number: number)
            let statements: [(Statement, Parameters)] = [
                (.lockUser, [.bytea(row.userKey)]),
                (
                    .createSession,
                    [
                        .bytea(row.key), .bytea(row.id), .bytea(row.userKey), .bigint(Int64(row.keyNumber)),
                        .bigint(row.createdAt), .bigint(row.expiresAt), .bigint(row.usedAt),
                        .bigint(row.number), .bytea(row.user),
                    ]
                ),
                (.trimSessions, [.bytea(row.userKey), .bigint(Int64(max(1, perUser)))]),
            ]
            return SessionOperation(senderRows, 0, of: row.userKey, statements, completion) {
                result, statement, ended in
                if statement == .trimSessions { ended = result.changedCount }
            }
        }
    }

    func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        gather(for: completion) { completion in
            SessionOperation(senderRows, nil, [(.endSession, [.bytea(id.bytes)])], completion) {
                [senderRows] result, _, ended in
                // Without a row, an earlier attempt may have ended the session. One whose row does not open is ended as well.
                guard result.rowCount > 0 else { return }
                ended = EndedSession(id: id, user: try? senderRows.opened(SessionRow(result, row: 0)).session.user)
            }
        }
    }

    func endSessions(of user: [UInt8], completion: Completion<Int>) {
        erase(user, erasesToken: false, completion.taking(\.sessions))
    }

    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        gather(for: completion) { completion in
            let parameters: Parameters = [.bytea(userKey(user)), .bigint(rows.unixTime)]
            return SessionOperation(
                senderRows, [UserSession](), isWrite: false, [(.listSessions, parameters)], completion
            ) { [senderRows] (result, _, sessions) throws(StoreError) in
                sessions = []
                for row in 0..<result.rowCount {
                    sessions.append(try senderRows.opened(SessionRow(result, row: row)).session)
                }
            }
        }
    }

    func erase(_ user: [UInt8], completion: Completion<Erasure>) {
        erase(user, erasesToken: true, completion)
    }

    private func erase(_ user: [UInt8], erasesToken: Bool, _ completion: Completion<Erasure>) {
        gather(for: completion) { completion in
            let key = userKey(user)
            var statements: [(Statement, Parameters)] = [
                (.lockUser, [.bytea(key)]), (.trimSessions, [.bytea(key), .bigint(0)]),
            ]
            if erasesToken {
                let version = rows.state.versions.next().rawValue
                statements.append((.eraseToken, [.bytea(key), .bigint(version), .bigint(rows.unixTime)]))
            }
            return SessionOperation(senderRows, Erasure(hadToken: false, sessions: 0), of: key, statements, completion)
            {
                [state] result, statement, erasure in
                switch statement {
                // What an earlier attempt has done counts as well.
                case .trimSessions: erasure.sessions = max(erasure.sessions, result.changedCount)
                case .eraseToken where result.rowCount > 0:
                    // So that further writes of this server have later versions.
                    state.versions.note(TokenVersion(rawValue: result.integer(0, 0)))
                    erasure.hadToken = erasure.hadToken || result.integer(0, 1) != 0
                default: break
                }
            }
        }
    }

    private func rowKey(of session: SessionKey?) -> [UInt8]? {
        session.map { rows.coder.rowKey(of: $0) }
    }

    private func userKey(_ user: [UInt8]) -> [UInt8] {
        var key = RowKey()
        rows.coder.key(of: user, into: &key)
        return key.bytes
    }
}
#endif
