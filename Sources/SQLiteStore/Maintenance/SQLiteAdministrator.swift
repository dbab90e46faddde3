internal import Synchronization
internal import System
package import TokenStore

/// Administers a SQLite store on a queue of its own, in steps that occupy the writer no longer than clients' groups do.
package actor SQLiteAdministrator: StoreAdministrator, StoreBackups, KeyRingAdministrator, StoreVerifier {
    let store: OpenDatabase
    private let executor = BlockingExecutor(label: "administration")
    let longReads = LongReads()
    private var openReader: (reader: TokenReader, generation: UInt64)?

    package nonisolated let users: any UserAdministrator

    init(_ store: OpenDatabase, users: any UserAdministrator) {
        self.store = store
        self.users = users
    }

    package nonisolated var backups: (any StoreBackups)? { self }
    package nonisolated var keyRing: (any KeyRingAdministrator)? { self }
    package nonisolated var verifier: (any StoreVerifier)? { self }

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
}

extension SQLiteAdministrator {
    package func page(after cursor: StoreCursor?, limit: Int) throws(StoreError) -> TokenPage {
        var start: Int64 = 0
        if let cursor {
            guard let slot = Int64(cursor.text) else { throw .refused("the cursor is not one of this store's") }
            start = slot
        }
        let rows = try rows(after: start, limit: limit)
        var page = TokenPage()
        page.entries = rows.rows.map {
            TokenPage.Entry(writtenAt: $0.times.writtenAt, expiresAt: $0.times.expiresAt, token: $0.token)
        }
        if !rows.isLast, let last = rows.rows.last { page.next = StoreCursor("\(last.slot)") }
        return page
    }

    /// A row that was opened.
    struct OpenedRow {
        let slot: Int64
        let key: [UInt8]
        let times: RowTimes
        let token: Result<Token, SealingError>
    }

    /// Opens some rows, in the order of their slots.
    ///
    /// - Parameters:
    ///   - slot: The slot after which to begin.
    ///   - limit: How many rows to return at most; fewer are returned when they are large.
    func rows(after slot: Int64, limit: Int) throws(StoreError) -> (rows: [OpenedRow], isLast: Bool) {
        var coder = RowCoder(store.state.sealing)
        return try readingRows { (connection) throws(SQLiteError) in
            let select = try SQLiteStatement(
                "SELECT \(StoredRow.columns) FROM token WHERE slot > ?1 ORDER BY slot LIMIT ?2", on: connection
            )
            try select.bind(slot, at: 1)
            // One more than asked for, to know whether there is a next page.
            try select.bind(Int64(limit) + 1, at: 2)
            var rows: [OpenedRow] = []
            var bytes = 0
            while try select.step() {
                if rows.count == limit || bytes >= WriterConnection.stepBytes { return (rows, false) }
                let row = StoredRow(select)
                let token: Result<Token, SealingError>
                do throws(SealingError) {
                    token = .success(
                        try select.withBlob(at: StoredRow.Column.value) { (value) throws(SealingError) in
                            bytes += value.count
                            return try row.token(of: value, &coder)
                        }
                    )
                } catch {
                    token = .failure(error)
                }
                rows.append(OpenedRow(slot: row.slot, key: row.key, times: row.times, token: token))
            }
            return (rows, true)
        }
    }

    package func statistics(exactly: Bool) async throws(StoreError) -> StoreStatistics {
        let (tokens, used, free) = try await store.writerThread.perform { (writer) throws(SQLiteError) in
            (writer.tokenCount, try writer.usedBytes(), try writer.freeBytes())
        }
        return StoreStatistics(
            tokens: tokens, databaseBytes: used + free, freeBytes: free,
            walBytes: FileStatus.size(of: store.path + "-wal"),
            isSealed: store.state.sealing.ring != nil, newestKey: store.state.sealing.ring?.active.number,
            software: "SQLite \(SQLiteLibrary.version)", schemaVersion: Schema.version,
            unreadableReads: store.state.unreadableCount.load(ordering: .relaxed), place: store.directory.path
        )
    }
}
