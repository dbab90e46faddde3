#if PostgreSQL
internal import Cryptography
internal import Synchronization
internal import System
internal import TokenStore

/// The requests of clients.
extension PostgresStoreHandle {
    func fetch(
        _ id: [UInt8], upTo limit: Int, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        var key = RowKey()
        do throws(SealingError) {
            try rows.coder.key(of: id, into: &key)
        } catch {
            throw .sealing(error)
        }
        let bytes = key.bytes.count + Operation.waitingBytes
        if let refusal = admit(bytes) { throw refusal }
        read(key.bytes, upTo: limit, bytes).join(makeCompletion())
        return nil
    }

    /// A read of a row that begins from now on.
    private func read(_ key: [UInt8], upTo limit: Int, _ bytes: Int) -> FetchOperation {
        func make() -> FetchOperation {
            FetchOperation(key, upTo: limit, bytes: bytes, deadline: deadline, rows: rows)
        }
        guard let present = reads[key], present.limit == limit else {
            let new = make()
            // One with another limit is not joined, nor does it take part in the order of the others.
            if reads[key] == nil { reads[key] = new }
            gather(new)
            return new
        }
        guard present.hasBeenSent else { return present }
        if let successor = present.successor { return successor }
        let new = make()
        present.successor = new
        return new
    }

    /// Lets the next read of the same row begin.
    func finishRead(_ read: FetchOperation) {
        guard reads[read.key] === read else { return }
        reads[read.key] = read.successor
        if let successor = read.successor { gather(successor) }
    }

    var unixTime: Int64 { state.clock.unixTime }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        let refusal = change(Token.waitingBytes(id: id, info: tokenInfo), condition) { () throws(SealingError) in
            let row = try rows.coder.row(of: Token(id: id, info: tokenInfo), writtenAt: writtenAt ?? unixTime)
            return .store(row, completion: completion)
        }
        if let refusal { completion(.failure(refusal)) }
    }

    func remove(
        _ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>
    ) {
        let refusal = change(Token.waitingBytes(id: id, info: []), condition) { () throws(SealingError) in
            .remove(key: try userKey(id), completion: completion)
        }
        if let refusal { completion(.failure(refusal)) }
    }

    private func change(
        _ bytes: Int, _ condition: WriteCondition, _ make: () throws(SealingError) -> WriteOperation.Change
    ) -> StoreError? {
        gather(bytes) { () throws(SealingError) in
            let session = try condition.session.map { (key) throws(SealingError) in try rows.coder.rowKey(of: key) }
            return WriteOperation(
                try make(), if: condition, session: session, bytes: bytes, deadline: deadline, rows: rows)
        }
    }

    /// Gathers an operation, if it is admitted and can be made.
    ///
    /// - Returns: Why it was not gathered.
    private func gather(_ bytes: Int, _ make: () throws(SealingError) -> Operation) -> StoreError? {
        if let refusal = admit(bytes) { return refusal }
        do throws(SealingError) {
            let operation = try make()
            // What is released in the end is what the operation says.
            state.waitingBytes.add(operation.bytes - bytes, ordering: .relaxed)
            gather(operation)
            return nil
        } catch {
            release(bytes)
            return .sealing(error)
        }
    }

    // MARK: - Sessions

    func sessionKey(of secret: Span<UInt8>) throws(StoreError) -> SessionKey {
        // Until the store is open, there are no keys.
        if let refusal = state.refusal { throw refusal }
        do throws(SealingError) {
            return try rows.coder.sessionKey(of: secret)
        } catch {
            throw .sealing(error)
        }
    }

    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        if let refusal = admit(Operation.waitingBytes) { throw refusal }
        do throws(SealingError) {
            let rowKey = try rows.coder.rowKey(of: key)
            gather(
                FindSessionOperation(key, rowKey: rowKey, deadline: deadline, rows: rows, completion: makeCompletion()))
            return nil
        } catch {
            release(Operation.waitingBytes)
            throw .sealing(error)
        }
    }

    func noteUse(of key: SessionKey, at unixTime: Int64) {
        // A use that cannot be noted is lost.
        _ = gather(Operation.waitingBytes) { () throws(SealingError) in
            NoteUseOperation(of: try rows.coder.rowKey(of: key), at: unixTime, deadline: deadline, rows: rows)
        }
    }

    func createSession(_ request: NewSession, completion: Completion<CreatedSession>) {
        let refusal = gather(Operation.waitingBytes) { () throws(SealingError) in
            CreateSessionOperation(
                try rows.coder.row(of: UserSession(request), request.key), perUser: request.perUser, deadline: deadline,
                rows: rows, completion: completion)
        }
        if let refusal { completion(.failure(refusal)) }
    }

    func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        let refusal = gather(Operation.waitingBytes) { () throws(SealingError) in
            EndSessionOperation(id, deadline: deadline, rows: rows, completion: completion)
        }
        if let refusal { completion(.failure(refusal)) }
    }

    func endSessions(of user: [UInt8], completion: Completion<Int>) {
        erase(user, erasesToken: false, completion.taking(\.sessions))
    }

    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        let refusal = gather(Operation.waitingBytes) { () throws(SealingError) in
            ListSessionsOperation(of: try userKey(user), deadline: deadline, rows: rows, completion: completion)
        }
        if let refusal { completion(.failure(refusal)) }
    }

    func erase(_ user: [UInt8], completion: Completion<Erasure>) {
        erase(user, erasesToken: true, completion)
    }

    private func erase(
        _ user: [UInt8], erasesToken: Bool, _ completion: Completion<Erasure>
    ) {
        let refusal = gather(Operation.waitingBytes) { () throws(SealingError) in
            EraseOperation(
                try userKey(user), erasesToken: erasesToken, deadline: deadline, rows: rows, completion: completion)
        }
        if let refusal { completion(.failure(refusal)) }
    }

    private func userKey(_ user: [UInt8]) throws(SealingError) -> [UInt8] {
        var key = RowKey()
        try rows.coder.key(of: user, into: &key)
        return key.bytes
    }
}
#endif
