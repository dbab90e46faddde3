internal import CSQLite
internal import Glibc

/// Opens a store's database for writing: the first time, and again after a fault.
struct StoreOpener: Sendable {
    let directory: String
    let database: String
    let options: StoreOptions
    let report: @Sendable (StoreEvent) -> Void

    /// What was found, or made.
    struct Opened {
        let committer: Committer
        /// Nil for a store in the clear.
        let ring: KeyRing?
    }

    /// Opens the store, creating it if it is missing; in a folder that the caller has locked.
    func open() throws(StoreOpenError) -> Opened {
        try createPrivateFile()
        return try open(.readWriteCreate)
    }

    /// Opens a store that was open before.
    ///
    /// SQLite may have told readers of commits that are in the log's pages in memory but, after a failed sync, not on the
    /// disk. All of the log is therefore moved into the database and synced there before anything else is written.
    func reopen() throws(StoreOpenError) -> Opened {
        guard unsafe access(database, F_OK) == 0 else { throw .missing(path: database) }
        let opened = try open(.readWrite)
        let outcome = try Schema.opening(database) { () throws(SQLiteError) in
            try opened.committer.checkpoint(waiting: 1_000)
        }
        guard outcome == .complete else {
            throw .database(
                path: database,
                SQLiteError(code: SQLITE_BUSY, message: "readers do not let go of the log", sql: "checkpoint")
            )
        }
        return opened
    }

    /// Opens a file that is to become a store's database, without a log: a new one, or the copy of another.
    func openCopy() throws(StoreOpenError) -> Opened {
        let opened = try open(.readWrite)
        try Schema.opening(database) { () throws(SQLiteError) in
            _ = try opened.committer.connection.text("PRAGMA journal_mode = DELETE")
            // Whoever makes it syncs it when it is complete.
            try opened.committer.connection.execute("PRAGMA synchronous = OFF")
        }
        return opened
    }

    private func open(_ mode: SQLiteConnection.Mode) throws(StoreOpenError) -> Opened {
        let connection = try Schema.opening(database) { () throws(SQLiteError) in
            try SQLiteConnection(path: database, mode: mode)
        }
        let version = try Schema.check(connection, path: database)
        try Schema.opening(database) { () throws(SQLiteError) in
            try configure(connection)
            try Schema.migrate(connection, from: version)
        }
        let ring = try ring(of: connection)
        return try Schema.opening(database) { () throws(SQLiteError) in
            try Schema.index(connection, for: options.retention)
            return Opened(committer: try Committer(connection, options: options), ring: ring)
        }
    }

    /// SQLite gives the `-wal` and `-shm` files the mode of the database, so this one is created before SQLite does.
    private func createPrivateFile() throws(StoreOpenError) {
        let descriptor = unsafe Glibc.open(database, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw .directory(path: directory, call: "open \(database)", reason: unsafe String(cString: strerror(errno)))
        }
        _ = Glibc.close(descriptor)
        DataDirectory.synchronize(directory)
    }

    private func configure(_ connection: SQLiteConnection) throws(SQLiteError) {
        connection.waitForLocks()
        // The writer decides when; see Housekeeping.
        try connection.execute("PRAGMA wal_autocheckpoint = 0")
        // What is deleted or replaced is overwritten with zeros.
        try connection.execute("PRAGMA secure_delete = ON")
        let mode = try connection.text("PRAGMA journal_mode = WAL")
        guard mode == "wal" else {
            throw SQLiteError(code: SQLITE_IOERR, message: "the file system does not support WAL", sql: "journal_mode")
        }
        try connection.execute("PRAGMA synchronous = FULL")
    }

    // MARK: - Sealing

    /// The key ring of the store, which an empty one gets.
    private func ring(of connection: SQLiteConnection) throws(StoreOpenError) -> KeyRing? {
        let (identity, isEmpty) = try Schema.opening(database) { () throws(SQLiteError) in
            let select = try SQLiteStatement("SELECT key_ring, tokens FROM store", on: connection)
            defer { select.reset() }
            guard try select.step() else { return ([UInt8](), true) }
            return (select.blob(at: 0), select.integer(at: 1) == 0)
        }
        guard options.isSealed else {
            guard identity.isEmpty || isEmpty else { throw .sealed(path: database) }
            if !identity.isEmpty { try setIdentity([], connection) }
            return nil
        }
        guard !identity.isEmpty || isEmpty else { throw .notSealed(path: database) }
        let ring = try loadRing(isNew: isEmpty)
        let found = try keyRing { () throws(KeyRingError) in try Self.identity(of: ring) }
        if found != identity {
            guard isEmpty else { throw .keyRing(.ofAnotherStore(path: options.keyRing.path)) }
            try setIdentity(found, connection)
        }
        return ring
    }

    private func loadRing(isNew: Bool) throws(StoreOpenError) -> KeyRing {
        try keyRing { () throws(KeyRingError) in
            if let ring = try options.keyRing.load() { return ring }
            guard isNew else { throw KeyRingError.missing(path: options.keyRing.path) }
            let ring: KeyRing
            do throws(SealingError) {
                ring = try KeyRing.random(createdAt: Int64(time(nil)))
            } catch {
                throw KeyRingError.library(error)
            }
            try options.keyRing.save(ring)
            report(.madeKeyRing(path: options.keyRing.path))
            return ring
        }
    }

    private static func identity(of ring: KeyRing) throws(KeyRingError) -> [UInt8] {
        do throws(SealingError) {
            return try ring.identity()
        } catch {
            throw .library(error)
        }
    }

    private func setIdentity(_ identity: [UInt8], _ connection: SQLiteConnection) throws(StoreOpenError) {
        try Schema.opening(database) { () throws(SQLiteError) in
            let update = try SQLiteStatement("UPDATE store SET key_ring = nullif(?1, x'')", on: connection)
            try update.withBinding(identity, at: 1) { () throws(SQLiteError) in _ = try update.step() }
        }
    }

    private func keyRing<Result>(_ body: () throws(KeyRingError) -> Result) throws(StoreOpenError) -> Result {
        do throws(KeyRingError) {
            return try body()
        } catch {
            throw .keyRing(error)
        }
    }
}
