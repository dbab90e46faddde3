internal import CSQLite
internal import Synchronization
package import TokenStore

/// Token infos in one SQLite database: any number of readers, one writer.
///
/// WAL with `synchronous=FULL`: a commit is on disk when it returns. All commits and checkpoints go through the writer's
/// one connection. SQLite 3.7.0 to 3.51.2 can lose an acknowledged commit when two connections commit or checkpoint at
/// the same instant (the WAL-reset bug, sqlite.org/wal.html), so readers never checkpoint, not even on closing, and the
/// folder's lock keeps other processes out.
package final class SQLiteTokenStore: TokenStore, StorePreloader {
    package static let fileName = "tokens.db"
    /// What lies in the data folder, some of it only while a server runs; the key ring may lie elsewhere.
    package static let fileNames = ["", "-wal", "-shm"].map { fileName + $0 }

    let directory: DataDirectory
    let path: String
    let options: StoreOptions
    let state: StoreState
    let writerThread: WriterThread
    private let report: @Sendable (StoreEvent) -> Void
    /// Nil before the database is read ahead.
    private let runningPreloader = Mutex<Preloader?>(nil)

    /// Opens the store of a data directory, creating both if they are missing.
    ///
    /// - Parameters:
    ///   - directory: The folder, locked; closing the store lets other processes have it.
    ///   - options: What the operator has decided.
    ///   - report: Told of what the operator should know; called from any thread, and has to return soon.
    package init(
        in directory: DataDirectory, options: StoreOptions, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(SQLiteOpenError) {
        // Before any connection opens; the result only says that one already has, in which case the setting stands.
        _ = csqlite_disable_memory_statistics()
        let lock = try DatabaseLock(in: directory.path)
        path = lock.database
        // What a restore or a conversion has left that was cut off, which may be in the clear.
        DatabaseFile(path: path).discardNew()
        self.directory = directory
        self.options = options
        self.report = report
        let opener = StoreOpener(directory: directory.path, database: path, options: options, report: report)
        let opened = try opener.open()
        state = StoreState(
            sealing: Sealing(opened.keys, seals: opener.seals), retention: options.retention
        )
        let database = RecoveringDatabase(
            opened.writer, mayBeMixed: opened.mayBeMixed, opener: opener, state: state, directory: directory,
            lock: lock
        )
        writerThread = WriterThread(
            database, state: state,
            admission: WriteAdmission(byteLimit: options.queueLimit, timeLimit: options.queueTime), report: report
        )
    }

    package var software: StoreSoftware { SQLiteLibrary.software }

    package var summary: String {
        let bug = software.defect == nil ? "" : " (has the WAL-reset bug, which cannot strike here)"
        return "SQLite \(software.version)\(bug) in \(directory.path), \(options.isSealed ? "sealed" : "in the clear")"
    }

    package var administrator: any StoreAdministrator { SQLiteAdministrator(self) }

    package var preloader: (any StorePreloader)? { self }

    package var seesAllWrites: Bool { true }

    package func report(writesTo observer: any WriteObserver) {
        state.observer = observer
    }

    package func makeSession(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any TokenSession {
        do throws(SQLiteError) {
            return try SQLiteSession(path: path, state: state, writerThread: writerThread, deliver: deliver)
        } catch {
            throw .read(StoreFault(error))
        }
    }

    /// Why writes fail, and again nil within two seconds of the cause being gone; or why reads do, until none has for ten.
    package var fault: StoreError? {
        state.fault ?? state.readFaults?.error ?? writerThread.admission.stall.map { .overloaded($0) }
    }

    /// The first time that one of the times is set, writes wait until the index for it has been made: about a second for
    /// each million tokens.
    package func change(_ retention: Retention) async throws(StoreError) {
        guard retention != state.retention else { return }
        try await writerThread.perform { (writer) throws(SQLiteError) in
            try Schema.index(writer.connection, for: retention)
        }
        state.change(retention)
    }

    package func preload() {
        let preloader = Preloader(path: path, report: report)
        runningPreloader.withLock { $0 = preloader }
        preloader.start()
    }

    package func close() {
        runningPreloader.withLock { $0.take() }?.stop()
        writerThread.close()
        directory.unlock()
    }
}
