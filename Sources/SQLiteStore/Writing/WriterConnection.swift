internal import TokenStore

/// The only connection that writes to the database, with its statements.
///
/// Used by one thread at a time.
final class WriterConnection {
    let connection: SQLiteConnection
    private let begin: SQLiteStatement
    private let end: SQLiteStatement
    private let table: TokenTable
    private let setCount: SQLiteStatement
    private var sealTable: SealTable
    private let pageCount: SQLiteStatement
    private let freePageCount: SQLiteStatement
    let pageSize: Int
    private let options: StoreOptions
    /// Tokens in the store, including the open transaction.
    private(set) var tokenCount: Int
    /// The limit that new ids are refused for, as of the last group; nil if none is.
    private(set) var reachedLimit: StoreLimit?
    /// The backup that is being written; nil if none is.
    var copy: DatabaseCopy?
    /// Nil until first needed.
    var checkpointer: BackgroundCheckpointer?

    /// - Parameter seals: What the keys have sealed, which is kept in the database.
    init(
        _ connection: SQLiteConnection, options: StoreOptions, seals: SealCounts = SealCounts()
    ) throws(SQLiteError) {
        self.connection = connection
        self.options = options
        begin = try SQLiteStatement("BEGIN IMMEDIATE", on: connection)
        end = try SQLiteStatement("COMMIT", on: connection)
        table = try TokenTable(connection)
        sealTable = try SealTable(connection, seals)
        setCount = try SQLiteStatement("UPDATE store SET tokens = ?1", on: connection)
        pageCount = try SQLiteStatement("PRAGMA page_count", on: connection)
        freePageCount = try SQLiteStatement("PRAGMA freelist_count", on: connection)
        pageSize = try connection.integer("PRAGMA page_size")
        // A manipulated file may hold any number.
        tokenCount = min(max(0, try connection.integer("SELECT tokens FROM store")), Int.max / 2)
    }

    /// Makes rows durable, all in one transaction and in their order.
    ///
    /// A row may fail alone, and the others are stored. If the disk or the transaction fails, the error is thrown and
    /// no row is stored.
    ///
    /// - Parameters:
    ///   - rows: The rows.
    ///   - isAccepted: Whether the key that a row was sealed with may still be used; otherwise the row fails.
    /// - Returns: An outcome for each row.
    func commit(
        _ rows: [Row], _ isAccepted: (Row) -> Bool = { _ in true }
    ) throws(SQLiteError) -> [Result<Void, StoreError>] {
        try transaction { () throws(SQLiteError) in
            try checkLimits()
            var outcomes: [Result<Void, StoreError>] = []
            outcomes.reserveCapacity(rows.count)
            for row in rows { outcomes.append(isAccepted(row) ? try outcome(of: row) : .failure(.staleKey)) }
            return outcomes
        }
    }

    /// Runs a transaction that may add and remove tokens.
    ///
    /// After an error the database is unchanged.
    func transaction<Result>(_ body: () throws(SQLiteError) -> Result) throws(SQLiteError) -> Result {
        let countBefore = tokenCount
        do throws(SQLiteError) {
            try begin.run()
            let result = try body()
            if tokenCount != countBefore {
                try setCount.bind(Int64(tokenCount), at: 1)
                try setCount.run()
            }
            try sealTable.reserve()
            try end.run()
            sealTable.noteCommit()
            return result
        } catch {
            // SQLite has already rolled back after some errors; a second time does no harm.
            if connection.isInTransaction { try? connection.execute("ROLLBACK") }
            tokenCount = countBefore
            sealTable.noteRollback()
            throw error
        }
    }

    /// How often the keys have sealed.
    var seals: SealCounts { sealTable.seals }

    /// Stores the exact number of seals, before the store is closed.
    func storeSeals() throws(SQLiteError) {
        guard sealTable.isAhead else { return }
        try transaction { () throws(SQLiteError) in try sealTable.storeExactly() }
    }

    /// Bytes of pages in the WAL, without the frames' heads.
    var walSize: Int { connection.walPages * pageSize }

    /// Counts rows that a statement has just removed.
    func noteRemoved(_ count: Int) {
        tokenCount = max(0, tokenCount - count)
    }

    /// Bytes of the database without its free pages.
    func usedBytes() throws(SQLiteError) -> Int {
        (try value(of: pageCount) - value(of: freePageCount)) * pageSize
    }

    /// Bytes of free pages in the database.
    func freeBytes() throws(SQLiteError) -> Int {
        try value(of: freePageCount) * pageSize
    }

    private func value(of statement: SQLiteStatement) throws(SQLiteError) -> Int {
        defer { statement.reset() }
        return try statement.step() ? statement.integer(at: 0) : 0
    }

    // MARK: - Rows

    private func outcome(of row: Row) throws(SQLiteError) -> Result<Void, StoreError> {
        do throws(SQLiteError) {
            if try table.replace(row) { return .success(()) }
            if row.keepsNewer, try table.contains(row.key) { return .failure(.newer) }
            if let reachedLimit { return .failure(.full(reachedLimit)) }
            try table.add(row)
            tokenCount += 1
            if let limit = options.tokenLimit, tokenCount >= limit { reachedLimit = .tokens(limit) }
            return .success(())
        } catch {
            guard error.isOfOneStatement, connection.isInTransaction else { throw error }
            return .failure(.write(StoreFault(error)))
        }
    }

    /// Removes the rows of some keys.
    ///
    /// - Returns: How many rows were removed.
    func remove(_ keys: [RowKey]) throws(SQLiteError) -> Int {
        try transaction { () throws(SQLiteError) in
            var removed = 0
            for key in keys where try table.remove(key) { removed += 1 }
            noteRemoved(removed)
            return removed
        }
    }

    private func checkLimits() throws(SQLiteError) {
        if let limit = options.tokenLimit, tokenCount >= limit {
            reachedLimit = .tokens(limit)
        } else if let limit = options.byteLimit, try usedBytes() >= limit {
            reachedLimit = .bytes(limit)
        } else {
            reachedLimit = nil
        }
    }
}
