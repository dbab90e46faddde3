internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// Erases users: their rows, what the files still hold of them, and, by a record beside the key ring, what older backups
/// bring back.
///
/// The files are cleaned once for all erasures that wait. Clients are served meanwhile; the writer's thread is asked for
/// small steps only.
actor UserEraser {
    private let store: OpenDatabase
    private let report: @Sendable (StoreEvent) -> Void
    private let executor = BlockingExecutor(label: "erasures")
    /// The cleaning that runs, and the one that will follow it.
    private var (running, next): (Cleaning?, Cleaning?)

    private typealias Cleaning = Task<StoreError?, Never>

    init(_ store: OpenDatabase, report: @escaping @Sendable (StoreEvent) -> Void) {
        self.store = store
        self.report = report
    }

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// Erases a user; nothing of it is in any file of the data folder when this returns.
    ///
    /// After an error the user's rows may be gone or not; erasing again goes on from there.
    func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure {
        let sealing = store.state.sealing
        let outcome = try await store.writerThread.perform(writing: [user]) { (writer) throws(SQLiteError) in
            try writer.erase(user, sealing)
        }
        let (erasure, version) = try outcome.get()
        try ErasuresFile(beside: store.options.keyRing, directory: store.directory.path).append(user, version)
        if let error = await clean() { throw error }
        return erasure
    }

    /// What `erase` returns or throws.
    func outcome(of user: [UInt8]) async -> Result<Erasure, StoreError> {
        do throws(StoreError) {
            return .success(try await erase(user))
        } catch {
            return .failure(error)
        }
    }

    /// Waits for a cleaning that begins from now on.
    private func clean() async -> StoreError? {
        if let next { return await next.value }
        let former = running
        let cleaning = Cleaning {
            _ = await former?.value
            return await self.cleanNow()
        }
        next = cleaning
        return await cleaning.value
    }

    private func cleanNow() async -> StoreError? {
        // From here on, whoever comes needs another one.
        (running, next) = (next, nil)
        do throws(StoreError) {
            try removeCopies()
            try await emptyWAL()
            try await cleanPages()
            return nil
        } catch {
            return error
        }
    }

    // MARK: - Files

    /// Removes copies of damaged WALs, and what interrupted backups have left in the data folder.
    private func removeCopies() throws(StoreError) {
        let copies = DamagedWALCopies.all(of: store.path)
        for copy in copies { try Self.remove(copy) }
        if !copies.isEmpty { report(.damagedWALCopiesErased(paths: copies)) }
        // A backup that is under way removes its file itself, or finishes it.
        guard !store.state.isBackingUp.load(ordering: .acquiring) else { return }
        let folder = store.directory.path
        for name in Folder.names(in: folder) ?? [] where name.hasSuffix(BackupFile.partialSuffix) {
            let path = folder + "/" + name
            if FileStatus(path)?.kind == .file, BackupFile.mayBeUnfinished(path) { try Self.remove(path) }
        }
    }

    /// Removes a file and overwrites its content, as far as the disk overwrites in place.
    private static func remove(_ path: String) throws(StoreError) {
        let descriptor = retryingInterrupts { unsafe open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC) }
        defer { if descriptor >= 0 { Glibc.close(descriptor) } }
        try PrivateFile.remove(path)
        try PrivateFile.synchronizeFolder(of: path)
        if descriptor >= 0 { PrivateFile.overwrite(descriptor) }
    }

    // MARK: - The WAL and the database

    /// How long readers of an earlier state are waited for.
    private static let readerTime = Duration.seconds(30)
    /// How long writes wait for readers at most: longer than most turns of a loop, which are all that many readers take.
    private static let writerTime: Int32 = 5
    /// The pauses between two attempts, each twice as long as the one before, in which writes are not held up.
    private static let pauses = Duration.milliseconds(20)...Duration.seconds(1)
    /// Pages that are searched in one go, and cleaned in one step of the writer.
    private static let (searchedPages, cleanedPages) = (4_096, 256)

    /// Moves the WAL into the database, syncs that, and truncates the WAL for good.
    private func emptyWAL() async throws(StoreError) {
        try await whenWALIsEmpty { (_) throws(SQLiteError) in }
        // SQLite does not sync a truncation.
        let wal = Path.resolved(store.path) + "-wal"
        if FileStatus.exists(wal) { try PrivateFile.synchronize(wal) }
    }

    /// Runs a closure on the writer's thread while the WAL is empty.
    private func whenWALIsEmpty(
        _ body: @escaping @Sendable (WriterConnection) throws(SQLiteError) -> Void
    ) async throws(StoreError) {
        let began = ContinuousClock.now
        var pause = Self.pauses.lowerBound
        while true {
            let isDone = try await store.writerThread.perform { (writer) throws(SQLiteError) in
                guard try writer.checkpoint(.truncate, waiting: Self.writerTime, insists: true) == .complete else {
                    return false
                }
                try body(writer)
                return true
            }
            if isDone { return }
            // Loops read for a turn at most; a check of the whole store may take longer.
            guard ContinuousClock.now - began < Self.readerTime else {
                throw .refused(
                    """
                    the user is erased from the store, but not yet from its log, as something has been reading an earlier \
                    state for \(Self.readerTime), for example token-cache verify; erase the user again when that is done
                    """
                )
            }
            try? await Task.sleep(for: pause)
            pause = min(pause * 2, Self.pauses.upperBound)
        }
    }

    /// Overwrites what SQLite has left of removed rows in the pages of the database.
    private func cleanPages() async throws(StoreError) {
        let file: (connection: SQLiteConnection, pages: DatabasePages)
        do throws(SQLiteError) {
            let connection = try SQLiteConnection(path: store.path, mode: .readOnly)
            file = (connection, try DatabasePages(connection))
        } catch {
            throw .read(StoreFault(error))
        }
        var start = 1
        while start <= file.pages.count {
            let end = min(start + Self.searchedPages, file.pages.count + 1)
            let dirty: [Int]
            do throws(SQLiteError) {
                dirty = try file.pages.dirty(start..<end)
            } catch {
                throw .read(StoreFault(error))
            }
            for first in stride(from: 0, to: dirty.count, by: Self.cleanedPages) {
                let numbers = Array(dirty[first..<min(first + Self.cleanedPages, dirty.count)])
                try await whenWALIsEmpty { (writer) throws(SQLiteError) in
                    // A page of the cache would bring the bytes back when it is changed.
                    writer.connection.forgetPages()
                    try DatabasePages(writer.connection).erase(numbers)
                }
            }
            start = end
        }
        let code = file.connection.synchronizeFile()
        guard code == 0 else {
            throw .write(StoreFault(SQLiteError(code: code, message: "the database cannot be synced", sql: "erase")))
        }
    }
}

extension WriterConnection {
    /// Removes a user's token and sessions.
    ///
    /// - Returns: What there was, and a version that nothing of it had reached.
    func erase(
        _ user: [UInt8], _ sealing: Sealing
    ) throws(SQLiteError) -> Result<(Erasure, TokenVersion), StoreError> {
        var key = RowKey()
        do throws(SealingError) {
            // Not earlier, as the database may have been opened again meanwhile and be another one.
            var coder = RowCoder(sealing)
            try coder.key(of: user, into: &key)
        } catch {
            return .failure(.sealing(error))
        }
        return try transaction { () throws(SQLiteError) in
            let hadToken = try table.remove(key)
            if hadToken { noteRemoved(1) }
            let sessions = try sessions(sealing)
            let ended = noteEnded(try sessions.remove(userKey: key.bytes), sessions)
            return .success((Erasure(hadToken: hadToken, sessions: ended.count), versions.next()))
        }
    }
}
