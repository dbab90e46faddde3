internal import Synchronization
package import TokenStore

/// What an operator does with an open store, beside what clients do.
///
/// It works on a thread of its own, and takes no longer a turn of the writer than clients do.
package actor StoreAdministrator {
    let store: SQLiteTokenStore
    private let executor = BlockingExecutor(label: "administration")
    private var openReader: (reader: TokenReader, generation: UInt64)?

    package init(_ store: SQLiteTokenStore) {
        self.store = store
    }

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// How far a long piece of work has come.
    package struct Progress: Hashable, Sendable, Codable {
        package var done: Int
        package var total: Int

        package init(done: Int, total: Int) {
            self.done = done
            self.total = total
        }
    }

    /// The reader, opened anew when the database was.
    func reader() throws(StoreError) -> TokenReader {
        guard store.state.isInPlace.load(ordering: .acquiring) else {
            throw store.state.fault ?? .vanished(path: store.path)
        }
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

    /// Reads something that may take long, and fails when the task is cancelled.
    func readingForLong<Result>(
        _ connection: SQLiteConnection, _ body: () throws(SQLiteError) -> Result
    ) async throws(StoreError) -> Result {
        let outcome = await connection.interruptible(body)
        if Task.isCancelled { throw .refused("it was interrupted, as the server ends or nobody waits for it") }
        return try reading { () throws(SQLiteError) in try outcome.get() }
    }

    // MARK: - Single tokens

    /// The token info of an id; nil when there is none.
    package func fetch(_ id: [UInt8]) throws(StoreError) -> [UInt8]? {
        var tokenInfo: [UInt8] = []
        guard case .found = try reader().fetch(id, appendingTo: &tokenInfo) else { return nil }
        return tokenInfo
    }

    /// Stores tokens, replacing those of the same id; durable when it returns.
    ///
    /// - Parameters:
    ///   - tokens: With the time of their writing in seconds since 1970, nil for now.
    ///   - keepsNewer: Leaves tokens alone that were written later.
    /// - Returns: An outcome for each.
    package func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool = false
    ) async -> [Result<Void, StoreError>] {
        var rows: [Result<Row, StoreError>] = []
        var coder = RowCoder(store.state.sealing)
        for (token, writtenAt) in tokens {
            do throws(SealingError) {
                var row = try coder.row(of: token, writtenAt: writtenAt)
                row.keepsNewer = keepsNewer
                rows.append(.success(row))
            } catch {
                rows.append(.failure(.sealing(error)))
            }
        }
        var outcomes = await store.writer.commit(rows.compactMap { try? $0.get() })[...]
        return rows.map { row in
            switch row {
            case .success: outcomes.removeFirst()
            case .failure(let error): .failure(error)
            }
        }
    }

    /// Removes tokens, and what the file and its log still hold of them.
    ///
    /// - Returns: How many there were.
    package func remove(_ ids: [[UInt8]]) async throws(StoreError) -> Int {
        let sealing = store.state.sealing
        let outcome = try await store.writer.perform(writing: ids) { (committer) throws(SQLiteError) in
            var keys: [RowKey] = []
            do throws(SealingError) {
                // Not before: the database may have been opened again meanwhile, and be another one.
                var coder = RowCoder(sealing)
                for id in ids {
                    var key = RowKey()
                    try coder.key(of: id, into: &key)
                    keys.append(key)
                }
            } catch {
                return Result<Int, SealingError>.failure(error)
            }
            return .success(try committer.remove(keys))
        }
        let removed: Int
        switch outcome {
        case .success(let count): removed = count
        case .failure(let error): throw .sealing(error)
        }
        // Readers let go of the log within a turn; if one does not, housekeeping does this when it has.
        _ = try await store.writer.perform { (committer) throws(SQLiteError) in try committer.checkpoint(waiting: 200) }
        return removed
    }
}
