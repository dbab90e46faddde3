internal import Synchronization
package import TokenStore

/// Administers a SQLite store on a queue of its own, in steps that occupy the writer no longer than clients' groups do.
package actor SQLiteAdministrator: StoreAdministrator, StoreBackups, KeyRingAdministrator, StoreVerifier {
    let store: OpenDatabase
    private let executor = BlockingExecutor(label: "administration")
    let longReads = LongReads()
    private var openReader: (reader: TokenReader, generation: UInt64)?

    /// Erases a user.
    let eraseUser: Erasing

    init(_ store: OpenDatabase, erase: @escaping Erasing) {
        self.store = store
        eraseUser = erase
    }

    package nonisolated var backups: (any StoreBackups)? { self }
    package nonisolated var keyRing: (any KeyRingAdministrator)? { self }
    package nonisolated var verifier: (any StoreVerifier)? { self }
    package nonisolated var users: (any UserAdministrator)? { self }

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// The reader, opened again if the database was.
    func reader() throws(StoreError) -> TokenReader {
        let generation = store.state.generation.load(ordering: .acquiring)
        if let openReader, openReader.generation == generation { return openReader.reader }
        let reader = try reading { () throws(SQLiteError) in
            try TokenReader(path: store.path, state: store.state)
        }
        openReader = (reader, generation)
        return reader
    }

    func reading<Result>(_ body: () throws(SQLiteError) -> Result) throws(StoreError) -> Result {
        do throws(SQLiteError) {
            return try body()
        } catch {
            throw .read(StoreFault(error))
        }
    }

    /// Reads with the administration's connection.
    func readingRows<Result>(
        _ body: (SQLiteConnection) throws(SQLiteError) -> Result
    ) throws(StoreError) -> Result {
        let connection = try reader().connection
        return try reading { () throws(SQLiteError) in try body(connection) }
    }

    /// Runs a long read, which fails when the task is cancelled.
    func readingForLong<Value: Sendable>(
        _ body: @Sendable (SQLiteConnection) throws(SQLiteError) -> Value
    ) async throws(StoreError) -> Value {
        let outcome = await longReads.read(store.path, body)
        if Task.isCancelled {
            throw .refused("it was interrupted, because the server is stopping or the client has disconnected")
        }
        return try reading { () throws(SQLiteError) in try outcome.get() }
    }

    // MARK: - Single tokens

    package func fetch(_ id: [UInt8]) throws(StoreError) -> [UInt8]? {
        var tokenInfo: [UInt8] = []
        guard case .found = try reader().fetch(id, appendingTo: &tokenInfo) else { return nil }
        return tokenInfo
    }

    package func facts(of id: [UInt8]) throws(StoreError) -> TokenFacts? {
        var tokenInfo: [UInt8] = []
        guard case .found(_, _, let times) = try reader().fetch(id, appendingTo: &tokenInfo) else { return nil }
        return TokenFacts(size: tokenInfo.count, writtenAt: times.writtenAt, expiresAt: times.expiresAt)
    }

    package func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) async -> [Result<Void, StoreError>] {
        var rows: [Result<Row, StoreError>] = []
        var coder = RowCoder(store.state.sealing)
        for (token, writtenAt) in tokens {
            do throws(SealingError) {
                var row = try coder.row(of: token, writtenAt: writtenAt ?? store.state.clock.unixTime)
                row.keepsNewer = keepsNewer
                rows.append(.success(row))
            } catch {
                rows.append(.failure(.sealing(error)))
            }
        }
        var outcomes = await store.writerThread.commit(rows.compactMap { (try? $0.get()).map(Change.store) })[...]
        return rows.map { row in
            switch row {
            case .success: outcomes.removeFirst().map { _ in }
            case .failure(let error): .failure(error)
            }
        }
    }

    package func remove(_ ids: [[UInt8]]) async throws(StoreError) -> [Bool] {
        let sealing = store.state.sealing
        let outcome = try await store.writerThread.perform(writing: ids) { (writer) throws(SQLiteError) in
            var keys: [RowKey] = []
            do throws(SealingError) {
                // Not earlier, as the database may have been opened again meanwhile and be another one.
                var coder = RowCoder(sealing)
                for id in ids {
                    var key = RowKey()
                    try coder.key(of: id, into: &key)
                    keys.append(key)
                }
            } catch {
                return Result<[Bool], SealingError>.failure(error)
            }
            return .success(try writer.remove(keys))
        }
        let removed: [Bool]
        switch outcome {
        case .success(let found): removed = found
        case .failure(let error): throw .sealing(error)
        }
        // Readers release the WAL within a turn; otherwise the maintenance truncates it later.
        _ = try await store.writerThread.perform { (writer) throws(SQLiteError) in try writer.checkpoint(waiting: 200) }
        return removed
    }
}
