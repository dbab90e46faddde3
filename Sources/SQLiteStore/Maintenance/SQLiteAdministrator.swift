import Metrics
import Synchronization
import System
package import TokenStore

/// Administers a SQLite store on a queue of its own, in steps that occupy the writer no longer than clients' groups do.
package actor SQLiteAdministrator: StoreAdministrator, KeyRingAdministrator {
    let store: OpenDatabase
    private let executor = BlockingExecutor(label: "administration")
    let longReads = LongReads()
    private let backups: SQLiteBackups

    package nonisolated let handle: WaitingHandle

    init(_ store: OpenDatabase, handle: WaitingHandle) {
        (self.store, self.handle) = (store, handle)
        backups = SQLiteBackups(store)
    }

    package nonisolated var keyRing: (any KeyRingAdministrator)? { self }

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// Reads with a connection of its own.
    func reading<Value>(_ body: (SQLiteConnection) throws(SQLiteError) -> Value) throws(StoreError) -> Value {
        try StoreError.reading { () throws(SQLiteError) in
            try body(SQLiteConnection(path: store.path, mode: .readOnly))
        }
    }

    /// Runs a long read, which fails when the task is cancelled.
    func readingForLong<Value: Sendable>(
        _ body: @Sendable (SQLiteConnection) throws(SQLiteError) -> Value
    ) async throws(StoreError) -> Value {
        let outcome = await longReads.read(store.path, body)
        if Task.isCancelled {
            throw .refused("it was interrupted, because the server is stopping or the client has disconnected")
        }
        return try StoreError.reading { () throws(SQLiteError) in try outcome.get() }
    }
}

extension SQLiteAdministrator {
    package nonisolated func backUp(
        to path: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup { try await backups.backUp(to: path, progress) }

    package func recordBackup(isSuccessful: Bool) { store.recordBackup(isSuccessful: isSuccessful) }

    package func page(after cursor: String?, limit: Int) throws(StoreError) -> TokenPage {
        var start: Int64 = 0
        if let cursor {
            guard let slot = Int64(cursor) else { throw .refused("the cursor is not one of this store's") }
            start = slot
        }
        return try reading { (connection) throws(SQLiteError) in
            let rows = try OpenedRows(connection, store.state.sealing, after: start)
            var page = TokenPage()
            var bytes = 0
            while case .token(let row, let token)? = try rows.next() {
                if page.entries.count == limit || bytes >= WriterConnection.stepBytes {
                    page.next = "\(start)"
                    break
                }
                (start, bytes) = (row.slot, rows.valueBytes)
                page.entries.append((row.times, token))
            }
            return page
        }
    }

    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        let sealing = store.state.sealing
        var result = StoreVerification()
        progress(StoreProgress(done: 0, total: try await statistics().tokens))
        result.damages = try await readingForLong { (connection) throws(SQLiteError) in
            let damages = try connection.structuralDamages()
            return damages.isEmpty ? [try Schema.damage(of: connection)].compactMap(\.self) : damages
        }
        result.damagedCopy = DatabaseFileName.damagedCopy(of: store.path)
        // What is left of a damaged table may not be readable at all.
        if result.damages.isEmpty {
            (result.tokens, result.unreadable, result.unreadableRows, result.damages, result.lastWrittenAt) =
                try await readingForLong { (connection) throws(SQLiteError) in
                    let rows = try OpenedRows(connection, sealing)
                    let damages = try rows.readAll(progress)
                    return (rows.tokens, rows.unreadable, rows.unreadableRows, damages, rows.lastWrittenAt)
                }
        }
        result.missingErasures = try reading { (connection) in
            ErasuresFile.missing(
                of: Schema.erasures(of: connection), byStoreWith: store.options.keyRing, in: store.directory.path)
        }
        result.isSound = result.unreadable.isEmpty && result.damages.isEmpty
        return result
    }

    package func statistics(exactly: Bool) async throws(StoreError) -> StoreStatistics {
        // Neither by the writer nor from the table `store`: also while nothing can be written, or that table is damaged, tokens
        // can be exported.
        let (pages, freePages) = try reading { (connection) throws(SQLiteError) in
            (try connection.integer("PRAGMA page_count"), try connection.integer("PRAGMA freelist_count"))
        }
        let ring = store.state.sealing.ring
        var statistics = StoreStatistics(
            tokens: Int(store.state.metrics.tokens.value), isSealed: ring != nil,
            software: "SQLite \(SQLiteLibrary.version)", place: store.directory.path)
        statistics.databaseBytes = pages * SQLiteConnection.pageSize
        statistics.freeBytes = freePages * SQLiteConnection.pageSize
        statistics.walBytes = FileStatus.allocatedSize(of: store.path + "-wal")
        statistics.newestKey = ring?.active.number
        statistics.schemaVersion = Schema.version
        statistics.unreadableReads = store.state.unreadableCount.load(ordering: .relaxed)
        return statistics
    }
}

/// Reads that go over the whole database, one at a time, each with a connection of its own.
///
/// They have a queue of their own, so that the administration can answer other commands meanwhile.
actor LongReads {
    private let executor = BlockingExecutor(label: "long reads")

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// Reads a database; fails when the task is cancelled.
    func read<Value: Sendable>(
        _ path: String, mode: SQLiteConnection.Mode = .readOnly,
        _ body: @Sendable (SQLiteConnection) throws(SQLiteError) -> Value
    ) async -> Result<Value, SQLiteError> {
        let connection: SQLiteConnection
        do throws(SQLiteError) {
            connection = try SQLiteConnection(path: path, mode: mode)
        } catch {
            return .failure(error)
        }
        return await connection.interruptible { () throws(SQLiteError) in try body(connection) }
    }
}
