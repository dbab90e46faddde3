import TokenStore

/// The only connection that writes to the database, with its statements.
///
/// Used by one thread at a time.
final class WriterConnection {
    let connection: SQLiteConnection
    private let begin: SQLiteStatement
    private let end: SQLiteStatement
    let table: TokenTable
    let sessions: SessionTable
    /// Opens rows that are ended or sealed again, and seals them.
    var coder: RowCoder
    private let setCounts: SQLiteStatement
    /// Gives the rows their versions.
    var versions: VersionCounter
    private let pageCount: SQLiteStatement
    private let freePageCount: SQLiteStatement
    let options: StoreOptions
    /// Tokens in the store, including the open transaction.
    var tokenCount: Int
    /// Sessions in the store, including the open transaction.
    var sessionCount: Int
    /// The limit because of which new ids are refused, as of the last group; nil if they are accepted.
    var reachedLimit: StoreLimit?
    /// The change that made the last group fail; nil if the cause was not a single change.
    var failedChange: Change?
    /// The sessions that the open transaction has ended; nil for those whose rows do not open.
    private var endedSessions: [SessionKey?] = []
    /// The sessions for which `willEnd` was called; `RecoveringDatabase` empties this when it has reported that the change is over.
    var announcedSessions: [SessionKey?] = []
    /// Called in a transaction that ends sessions, before it is committed.
    var willEnd: ([SessionKey?]) -> Void = { _ in }
    /// The backup that is being written; nil if none is.
    var copy: DatabaseCopy?
    /// Nil until first needed.
    var backgroundSync: BackgroundSync?
    /// Bytes below which the database is checkpointed without preparation; changed by tests.
    var smallDatabase = 8 << 20
    /// When `makeRoom` last failed to make room; nil if it never has.
    var lastRoomFailure: ContinuousClock.Instant?

    init(_ connection: SQLiteConnection, options: StoreOptions, _ sealing: Sealing) throws(SQLiteError) {
        self.connection = connection
        self.options = options
        coder = RowCoder(sealing)
        begin = try SQLiteStatement("BEGIN IMMEDIATE", on: connection)
        end = try SQLiteStatement("COMMIT", on: connection)
        table = try TokenTable(connection)
        sessions = try SessionTable(connection)
        setCounts = try SQLiteStatement("UPDATE store SET tokens = ?1, sessions = ?2", on: connection)
        versions = try VersionCounter(connection)
        pageCount = try SQLiteStatement("PRAGMA page_count", on: connection)
        freePageCount = try SQLiteStatement("PRAGMA freelist_count", on: connection)
        let counts = try Schema.counts(of: connection)
        (tokenCount, sessionCount) = (counts.tokens, counts.sessions)
    }

    /// Runs a transaction that may add and remove tokens and sessions; whatever changes the database goes through here.
    ///
    /// After an error the database is unchanged.
    ///
    /// - Parameters:
    ///   - isProbe: Whether it takes space as if it added rows.
    ///   - body: Changes the database.
    func transaction<Result>(
        isProbe: Bool = false, _ body: () throws(SQLiteError) -> Result
    ) throws(SQLiteError) -> Result {
        let (tokensBefore, sessionsBefore) = (tokenCount, sessionCount)
        do {
            try begin.run()
            // What the last commit had to leave free says nothing about this one.
            connection.wal?.reserve = 0
            let startsRound = connection.progress?.startsRound ?? false
            let former = startsRound ? try connection.changes() : []
            let result = try body()
            if tokenCount != tokensBefore || sessionCount != sessionsBefore {
                try setCounts.bind(Int64(tokenCount), at: 1)
                try setCounts.bind(Int64(sessionCount), at: 2)
                try setCounts.run()
            }
            try versions.reserve()
            if !endedSessions.isEmpty { announceEnded() }
            // A transaction without changes must not write to the disk only because of the mark.
            let isFirst = startsRound ? try connection.changes() != former : false
            if isFirst { try connection.markRound() }
            let adds = isProbe || tokenCount > tokensBefore || sessionCount > sessionsBefore
            connection.wal?.reserve = try reserve(adds: adds)
            try end.run()
            if isFirst { connection.progress?.startsRound = false }
            return result
        } catch {
            // SQLite has already rolled back after some errors; a second time does no harm.
            if connection.isInTransaction { try? connection.execute("ROLLBACK") }
            (tokenCount, sessionCount) = (tokensBefore, sessionsBefore)
            endedSessions = []
            versions.noteRollback()
            throw error
        }
    }

    /// Bytes that a commit leaves free if it adds rows.
    ///
    /// A full store must still be able to delete and replace rows. That takes room in the WAL, and the new pages of a long value are
    /// allocated before its old ones are freed.
    private static let roomForChanges = 1 << 20

    /// Bytes that a commit must leave free on the disk.
    ///
    /// The next checkpoint makes the database file longer by the pages that so far are only in the WAL. If the WAL itself took that
    /// space, no checkpoint could ever succeed: the WAL could not be emptied, and nothing could be deleted.
    ///
    /// - Parameter adds: Whether it adds rows.
    private func reserve(adds: Bool) throws(SQLiteError) -> Int {
        let growth = try value(of: pageCount) * SQLiteConnection.pageSize - connection.fileSize
        guard growth > 0 else { return 0 }
        // With the mark behind the last page.
        return growth + SQLiteConnection.pageSize + (adds ? Self.roomForChanges : 0)
    }

    /// Counts sessions that the open transaction has removed, and opens their rows.
    ///
    /// - Returns: The sessions in the same order; nil for those that do not open.
    func noteEnded(_ rows: [SessionRow]) -> [OpenedSession?] {
        sessionCount = max(0, sessionCount - rows.count)
        return rows.map { row in
            let opened = try? coder.open(row)
            endedSessions.append(opened?.key)
            return opened
        }
    }

    private func announceEnded() {
        willEnd(endedSessions)
        announcedSessions += endedSessions
        endedSessions = []
    }

    /// Bytes of pages in the WAL, without the frames' heads.
    var walSize: Int { connection.walPages * SQLiteConnection.pageSize }

    /// Counts rows that a statement has just removed.
    func noteRemoved(_ count: Int) {
        tokenCount = max(0, tokenCount - count)
    }

    /// Bytes of the database without its free pages.
    func usedBytes() throws(SQLiteError) -> Int {
        (try value(of: pageCount) - value(of: freePageCount)) * SQLiteConnection.pageSize
    }

    /// Bytes of free pages in the database.
    func freeBytes() throws(SQLiteError) -> Int {
        try value(of: freePageCount) * SQLiteConnection.pageSize
    }

    private func value(of statement: SQLiteStatement) throws(SQLiteError) -> Int {
        defer { statement.reset() }
        return try statement.step() ? statement.integer(at: 0) : 0
    }

    /// - Parameter identity: The identity of the ring whose keys seal the store.
    func setKeyRing(_ identity: [UInt8]) throws(SQLiteError) {
        let update = try SQLiteStatement("UPDATE store SET key_ring = ?1", on: connection)
        try update.bind(identity, at: 1)
        try transaction { () throws(SQLiteError) in try update.run() }
    }

    func checkLimits() throws(SQLiteError) {
        let limit = options.byteLimit
        reachedLimit = if let limit, try usedBytes() >= limit { StoreLimit(bytes: limit) } else { nil }
    }
}

extension WriteObserver {
    /// These sessions are about to end; nil stands for one whose row does not open.
    func willEnd(anyOf ended: [SessionKey?]) { report(ended, to: willEnd) }

    /// The change that `willEnd` has announced is over.
    func didEnd(anyOf ended: [SessionKey?]) { report(ended, to: didEnd) }

    private func report(_ ended: [SessionKey?], to tell: ([SessionKey]) -> Void) {
        let keys = ended.compactMap(\.self)
        if !keys.isEmpty { tell(keys) }
        if keys.count < ended.count { didChangeEverything() }
    }
}
