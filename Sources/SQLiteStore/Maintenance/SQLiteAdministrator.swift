import Metrics
import Synchronization
import System
package import TokenStore

/// Administers a SQLite store on a queue of its own, in steps that occupy the writer no longer than clients' groups do.
package actor SQLiteAdministrator: StoreAdministrator, KeyRingAdministrator {
    let store: OpenDatabase
    private let executor = BlockingExecutor(label: "administration")
    let walker: Walker
    private let backups: SQLiteBackups

    package nonisolated let handle: WaitingHandle

    init(_ store: OpenDatabase, _ walker: Walker, handle: WaitingHandle) {
        (self.store, self.walker, self.handle) = (store, walker, handle)
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
}

extension SQLiteAdministrator {
    package nonisolated func backUp(
        to path: String, checks: Bool, keys: String?, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        try await backups.backUp(to: path, checks: checks, keys: keys, progress)
    }

    package func recordBackup(isSuccessful: Bool) { store.recordBackup(isSuccessful: isSuccessful) }

    package func page(after cursor: String?, limit: Int) throws(StoreError) -> TokenPage {
        var place = WalkState()
        if let cursor {
            guard Int64(cursor) != nil else { throw .refused("the cursor is not one of this store's") }
            place.place = cursor
        }
        return try reading { (connection) throws(SQLiteError) in
            let rows = try OpenedRows(connection, store.state.sealing, from: place)
            var page = TokenPage()
            var (last, bytes) = (cursor, 0)
            func note(_ damage: String) {
                page.entries.append((RowTimes(writtenAt: 0, expiresAt: nil), .failure(.refused(damage))))
                last = rows.place
            }
            while case .token(let row, let token)? = try rows.nextReadable(note) {
                if page.entries.count >= limit || bytes >= WalkPace.bytes {
                    page.next = last
                    break
                }
                (last, bytes) = ("\(row.slot)", rows.valueBytes)
                page.entries.append((row.times, token))
            }
            return page
        }
    }

    package nonisolated func walk(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> WalkReport { try await walker.round(progress) }

    /// Checks the structure only if no server uses the store, as that reads one state of the database for long.
    ///
    /// The WAL would grow by all that is written meanwhile. Whoever backs up a store checks the structure of the copy.
    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        var result = StoreVerification()
        result.damages = try await structuralDamages()
        // What is left of a damaged table may not be readable at all.
        if result.damages.isEmpty { result = StoreVerification(try await walk(progress)) }
        result.damagedCopy = DatabaseFileName.damagedCopy(of: store.path)
        result.missingErasures = try reading { (connection) in
            ErasuresFile.missing(
                of: Schema.erasures(of: connection), byStoreWith: store.options.keyRing, in: store.directory.path)
        }
        result.isSound = result.unreadable.isEmpty && result.damages.isEmpty
        return result
    }

    private func structuralDamages() async throws(StoreError) -> [String] {
        let isServing = store.options.isServing
        let connection = try reading { (connection) in connection }
        let found = await connection.interruptible { () throws(SQLiteError) in
            if let damage = try Schema.damage(of: connection) { return [damage] }
            guard !isServing else { return [] }
            let damages = try connection.structuralDamages()
            return damages.isEmpty ? [try connection.damagedCount()].compactMap(\.self) : damages
        }
        if Task.isCancelled {
            throw .refused("it was interrupted, because the server is stopping or the client has disconnected")
        }
        return try StoreError.reading { () throws(SQLiteError) in try found.get() }
    }

    package func statistics() throws(StoreError) -> StoreStatistics {
        // Neither by the writer nor from the table `store`: also while nothing can be written, or that table is damaged, tokens
        // can be exported.
        let (pages, freePages) = try reading { (connection) throws(SQLiteError) in
            (try connection.integer("PRAGMA page_count"), try connection.integer("PRAGMA freelist_count"))
        }
        var statistics = StoreStatistics(
            tokens: Int(store.state.metrics.tokens.value), newestKey: store.state.sealing.ring.active.number,
            software: "SQLite \(SQLiteLibrary.version)", place: store.directory.path)
        statistics.databaseBytes = pages * SQLiteConnection.pageSize
        statistics.freeBytes = freePages * SQLiteConnection.pageSize
        statistics.walBytes = FileStatus.allocatedSize(of: store.path + "-wal")
        statistics.schemaVersion = Schema.version
        statistics.walk = walker.status
        statistics.unreadableReads = store.state.unreadableCount.load(ordering: .relaxed)
        return statistics
    }
}
