import CSQLite
import Glibc
import Metrics
import Synchronization
import System
package import TokenStore

/// A store in one SQLite database, with one reader for each handle and one writer.
///
/// The database uses a WAL with `synchronous=FULL`: a commit is on disk when it returns. All commits and checkpoints
/// use the writer's one connection. SQLite 3.7.0 to 3.51.2 can lose an acknowledged commit when two connections commit
/// or checkpoint at the same instant (the WAL-reset bug, sqlite.org/wal.html), so readers never checkpoint, not even on
/// closing, and the folder's lock keeps other processes out.
package final class SQLiteTokenStore: TokenStore {
    let open: OpenDatabase
    /// Shared by all commands, because two would overwrite each other's changes of the key ring.
    package let administrator: any StoreAdministrator
    private let eraser: UserEraser
    let walker: Walker
    /// See `Schema.lastWrite`.
    private let lastWrite: String?
    /// Nil until `preload` is called.
    private let runningPreloader = Mutex<Preloader?>(nil)

    /// Opens the store of a data folder, creating it if it is missing.
    ///
    /// - Parameters:
    ///   - directory: The folder, locked; `close` unlocks it.
    ///   - options: The operator's settings.
    package init(in directory: DataDirectory, options: StoreOptions) throws(SQLiteOpenError) {
        // Must precede the first connection. An error only means that one is open already; the setting is then in
        // force.
        _ = csqlite_disable_memory_statistics()
        let file = try DatabaseFile(in: directory.path)
        // An interrupted restore or copy may have left it.
        file.discardNew()
        BackupFile.discardUnfinished(in: directory.path)
        let opener = StoreOpener(directory: directory.path, database: file.path, options: options)
        let opened = try opener.open()
        lastWrite = Schema.lastWrite(to: opened.writer.connection)
        let state = StoreState(
            sealing: opened.sealing, retention: options.retention, lastBackup: BackupRecord(in: directory.path))
        let walk = Schema.walk(of: opened.writer.connection)
        let database = RecoveringDatabase(opened, opener, state: state, directory: directory)
        let writerThread = WriterThread(database, state: state, options: options)
        let open = OpenDatabase(
            directory: directory, path: file.path, options: options, state: state, writerThread: writerThread)
        self.open = open
        let eraser = UserEraser(open)
        self.eraser = eraser
        let walker = Walker(open, walk ?? WalkState())
        self.walker = walker
        let handle = WaitingHandle { (deliver) throws(StoreError) in try open.handle(eraser, deliver) }
        administrator = SQLiteAdministrator(open, walker, handle: handle)
    }

    var directory: DataDirectory { open.directory }
    var path: String { open.path }
    var options: StoreOptions { open.options }
    var state: StoreState { open.state }
    var writerThread: WriterThread { open.writerThread }

    package var software: StoreSoftware { SQLiteLibrary.software }

    package var summary: String {
        let place = "SQLite \(software.version) in \(directory.path)"
        return lastWrite.map { "\(place), last written before \($0)" } ?? place
    }

    package var seesAllWrites: Bool { true }

    package func report(writesTo observer: any WriteObserver) {
        state.observer = observer
    }

    package func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        try open.handle(eraser, deliver)
    }

    /// Why writes fail, until about two seconds after the cause has gone, or half a minute if a full disk has room
    /// again, but for less than the write that failed; or why reads fail, until none has failed for ten seconds.
    package var fault: StoreError? {
        state.fault ?? state.readFaults?.error ?? writerThread.admission.stall.map { .overloaded($0) }
    }

    package func change(_ retention: Retention) {
        // On this thread, as a deletion by the former retention must not be under way when the observer is told.
        writerThread.runLater { [state, walker] in
            guard retention != state.retention else { return }
            state.change(retention)
            walker.beginBetweenGroups()
        }
    }

    package func preload() {
        let preloader = Preloader(path: path, report: options.report)
        runningPreloader.withLock { $0 = preloader }
        preloader.start()
    }

    package func finishWrites() {
        runningPreloader.withLock { $0.take() }?.stop()
        // They need the writer.
        eraser.finish()
        walker.stop()
        writerThread.close()
    }

    package func close() {
        finishWrites()
        directory.unlock()
    }
}

extension SQLiteTokenStore {
    package var metrics: StoreMetrics {
        let counted = state.metrics
        var metrics = StoreMetrics()
        (metrics.writes, metrics.expired) = (counted.writes.value, counted.expired.value)
        (metrics.tokens, metrics.sessions) = (counted.tokens.value, counted.sessions.value)
        metrics.queuedBytes = writerThread.admission.waitingBytes
        metrics.queueLimit = writerThread.admission.byteLimit
        metrics.commitTime = counted.commitTime.reading
        metrics.syncTime = counted.syncTime.reading
        metrics.groupSize = counted.groupSize.reading
        metrics.isExpiryHeld = state.clock.isHoldingExpiry
        metrics.databaseBytes = FileStatus.size(of: path)
        metrics.walBytes = FileStatus.allocatedSize(of: path + "-wal")
        metrics.sealingKey = state.sealing.ring.active.number
        metrics.missingKeys = walker.missingKeys
        metrics.walk = walker.status
        metrics.unreadableReads = state.unreadableCount.load(ordering: .relaxed)
        metrics.lastBackup = state.lastBackup.withLock(\.self)
        return metrics
    }
}

/// A database that is open for writing, with everything that works on it.
struct OpenDatabase: Sendable {
    /// Locked for as long as the database is open.
    let directory: DataDirectory
    /// The path of the database's file.
    let path: String
    let options: StoreOptions
    let state: StoreState
    let writerThread: WriterThread

    func handle(_ eraser: UserEraser, _ deliver: @escaping WaitingHandle.Deliver) throws(StoreError) -> any StoreHandle
    {
        try StoreError.reading { () throws(SQLiteError) in
            try SQLiteStoreHandle(self, eraser: eraser, deliver: deliver)
        }
    }
}

/// The SQLite store of a data folder, whether it exists already or not.
package struct SQLiteStoreProvider: StoreProvider {
    /// The data folder.
    let directory: String
    let options: StoreOptions

    /// - Parameters:
    ///   - directory: The data folder.
    ///   - options: The operator's settings.
    package init(directory: String, options: StoreOptions) {
        self.directory = directory
        self.options = options
    }

    package var software: StoreSoftware { SQLiteLibrary.software }

    package func open(in directory: DataDirectory) throws(StoreOpenError) -> any TokenStore {
        try general { () throws(SQLiteOpenError) in try SQLiteTokenStore(in: directory, options: options) }
    }

    package func copySource(in directory: DataDirectory) throws(StoreOpenError) -> any CopySource {
        try general { () throws(SQLiteOpenError) in try SQLiteCopySource(in: directory, options: options) }
    }

    package func copyTarget(in directory: DataDirectory) throws(StoreOpenError) -> any CopyTarget {
        try general { () throws(SQLiteOpenError) in try SQLiteCopyTarget(in: directory, options: options) }
    }

    /// Runs a closure, and throws its errors as every store does.
    func general<Value>(_ body: () throws(SQLiteOpenError) -> Value) throws(StoreOpenError) -> Value {
        do {
            return try body()
        } catch {
            throw error.general
        }
    }
}
