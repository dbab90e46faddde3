import Glibc
import Synchronization
import System
import TokenStore

/// Erases users: removes their rows, and records the erasure beside the key ring, so that a restored backup does not
/// bring them back.
///
/// SQLite overwrites removed rows with zeros (`secure_delete`), and the WAL is truncated before an erasure is
/// acknowledged. When SQLite redistributes rows among neighbouring pages, a copy of a moved row may stay in the unused
/// part of a page until another row takes its place; such a copy is sealed as its row was.
///
/// Erasures are recorded on a queue of their own, one after the other, so that commits do not wait for the key ring's
/// disk.
actor UserEraser {
    private let store: OpenDatabase
    private let executor = BlockingExecutor(label: "erasures")
    /// How many erasures have begun and not ended.
    private let underWay = Atomic<Int>(0)

    /// How long to wait for readers of an earlier state.
    private static let readerTime = Duration.seconds(30)
    /// For how many milliseconds writes wait for readers at most: longer than most turns of a loop, at whose end most
    /// readers end.
    private static let writerTime: Int32 = 5
    /// The pause between two attempts, in which writes continue.
    private static let pause = Duration.milliseconds(100)

    init(_ store: OpenDatabase) {
        self.store = store
    }

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// Erases a user.
    ///
    /// - Parameter tell: Gets the outcome, on any thread.
    nonisolated func begin(_ user: [UInt8], tell: @escaping @Sendable (Result<Erasure, StoreError>) -> Void) {
        underWay.add(1, ordering: .relaxed)
        Task {
            do throws(StoreError) {
                tell(.success(try await erase(user)))
            } catch {
                tell(.failure(error))
            }
            underWay.subtract(1, ordering: .releasing)
        }
    }

    /// Waits for the erasures that have begun, as these must be recorded; blocks its thread.
    nonisolated func finish() {
        while underWay.load(ordering: .acquiring) > 0 { usleep(1_000) }
    }

    /// After an error the user's rows may be gone or not; erasing again goes on from there.
    func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure {
        let erased = try await store.writerThread.perform(writing: [user]) { (writer) throws(SQLiteError) in
            try writer.erase(user)
        }.get()
        try record(user, erased.version)
        try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try writer.transaction { () throws(SQLiteError) in
                try Schema.set(erasures: Schema.erasures(of: writer.connection) + 1, in: writer.connection)
            }
        }
        let began = ContinuousClock.now
        while try await !store.writerThread.perform({ [self] (writer) throws(SQLiteError) in
            try emptyWAL(of: writer)
        }).get() {
            // Loops read for a turn at most; a check of the whole store may take longer.
            guard ContinuousClock.now - began < Self.readerTime else {
                throw .refused(
                    """
                    the user is erased from the store, but not yet from its log, as something has been reading an earlier \
                    state for \(Self.readerTime), for example token-cache verify; erase the user again when that is done
                    """
                )
            }
            try? await Task.sleep(for: Self.pause)
        }
        return erased.erasure
    }

    /// Records the erasure, and removes the copy of a damaged WAL, which may contain the user.
    private func record(_ user: [UInt8], _ version: TokenVersion) throws(StoreError) {
        try ErasuresFile(beside: store.options.keyRing, directory: store.directory.path).append(user, version)
        guard let copy = DatabaseFileName.damagedCopy(of: store.path) else { return }
        try PrivateFile.remove(copy)
        try PrivateFile.synchronizeFolder(of: copy)
        store.options.report(.damagedWALErased(path: copy))
    }

    /// Moves the WAL into the database, syncs that, and truncates the WAL durably; returns false if readers hold that
    /// up.
    private nonisolated func emptyWAL(of writer: WriterConnection) throws(SQLiteError) -> Result<Bool, StoreError> {
        guard try writer.checkpoint(.truncate, waiting: Self.writerTime, insists: true) == .complete else {
            return .success(false)
        }
        // SQLite does not sync a truncation.
        let wal = store.path + "-wal"
        do {
            if FileStatus.exists(wal) { try PrivateFile.synchronize(wal) }
            return .success(true)
        } catch {
            return .failure(error)
        }
    }
}
