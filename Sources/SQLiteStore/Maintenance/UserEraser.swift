internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// Erases users: their rows, and, by a record beside the key ring, what older backups bring back.
///
/// SQLite overwrites removed rows with zeros (`secure_delete`), and the WAL is truncated before an erasure is acknowledged. When
/// SQLite distributes rows anew among neighbouring pages, a copy of one that has moved may stay in the unused part of a page
/// until another row takes its place; such a copy is sealed as its row was.
actor UserEraser {
    private let store: OpenDatabase
    private let report: @Sendable (StoreEvent) -> Void
    private let executor = BlockingExecutor(label: "erasures")

    init(_ store: OpenDatabase, report: @escaping @Sendable (StoreEvent) -> Void) {
        self.store = store
        self.report = report
    }

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// Erases a user.
    ///
    /// After an error the user's rows may be gone or not; erasing again goes on from there.
    func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure {
        let sealing = store.state.sealing
        let outcome = try await store.writerThread.perform(writing: [user]) { (writer) throws(SQLiteError) in
            try writer.erase(user, sealing)
        }
        let (erasure, version) = try outcome.get()
        try ErasuresFile(beside: store.options.keyRing, directory: store.directory.path).append(user, version)
        try removeDamagedWAL()
        try await emptyWAL()
        return erasure
    }

    /// Removes the copy of a damaged WAL and overwrites its content, as far as the disk overwrites in place.
    private func removeDamagedWAL() throws(StoreError) {
        let path = store.path + DatabaseFileName.damagedWALSuffix
        let descriptor = retryingInterrupts { unsafe open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC) }
        guard descriptor >= 0 || FileStatus.exists(path) else { return }
        defer { if descriptor >= 0 { Glibc.close(descriptor) } }
        try PrivateFile.remove(path)
        try PrivateFile.synchronizeFolder(of: path)
        if descriptor >= 0 { PrivateFile.overwrite(descriptor) }
        report(.damagedWALErased(path: path))
    }

    /// How long to wait for readers of an earlier state.
    private static let readerTime = Duration.seconds(30)
    /// How long writes wait for readers at most: longer than most turns of a loop, which are all that many readers take.
    private static let writerTime: Int32 = 5
    /// The pauses between two attempts, each twice as long as the one before, in which writes are not held up.
    private static let pauses = Duration.milliseconds(20)...Duration.seconds(1)

    /// Moves the WAL into the database, syncs that, and truncates the WAL for good.
    private func emptyWAL() async throws(StoreError) {
        let began = ContinuousClock.now
        var pause = Self.pauses.lowerBound
        while try await store.writerThread.perform({ (writer) throws(SQLiteError) in
            try writer.checkpoint(.truncate, waiting: Self.writerTime, insists: true)
        }) == .heldUp {
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
        // SQLite does not sync a truncation.
        let wal = store.path + "-wal"
        if FileStatus.exists(wal) { try PrivateFile.synchronize(wal) }
    }
}

extension WriterConnection {
    /// Removes a user's token and sessions.
    ///
    /// - Returns: What was removed, and a version later than that of any removed row.
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
