import CSQLite
import Glibc
import System
import TokenStore

/// Opens a store's database for writing, at the start and after faults.
struct StoreOpener: Sendable {
    let directory: String
    let database: String
    var options: StoreOptions

    var checkRequest: CheckRequest { CheckRequest(of: database) }

    /// An open database.
    struct Opened {
        let writer: WriterConnection
        let sealing: Sealing
    }

    /// Whether the database is empty or missing; fails if it was not before.
    var isEmpty: Bool {
        get throws(SQLiteOpenError) {
            // SQLite treats a file of one byte as empty (unixFileSize in its os_unix.c).
            guard FileStatus.size(of: database) <= 1 else { return false }
            // With an empty database, SQLite would delete the WAL and the commits in it; and a check request says that the
            // database of a store was lost. A crash while a database is created leaves neither, because its first page is
            // written before it gets a WAL.
            guard FileStatus.size(of: database + "-wal") == 0 && !checkRequest.exists else {
                throw .emptied(path: database)
            }
            return true
        }
    }

    /// Opens the store, creating it if it is missing.
    ///
    /// The caller has locked the folder.
    func open() throws(SQLiteOpenError) -> Opened {
        let isEmpty = try isEmpty
        let hasRing = FileStatus.exists(options.keyRing.path)
        try createPrivateFile()
        let opened = try open(.readWriteCreate)
        // A key ring without tokens suggests that the disk with the tokens is not mounted.
        if isEmpty && hasRing { options.report(.madeStoreBesideRing(path: database, keyRing: options.keyRing.path)) }
        return opened
    }

    /// Opens a store that was open before; see `settle`.
    ///
    /// - Parameter state: Has the keys in force.
    func reopen(_ state: StoreState) throws(SQLiteOpenError) -> Opened {
        try open(.readWrite, state.sealing)
    }

    /// Checkpoints the whole WAL and syncs the database; required after a crash or a fault, before anything else is
    /// written.
    ///
    /// What SQLite reads in the WAL may exist in the page cache only: it was not synced yet, or a failed sync has left
    /// it marked as written. Then a power cut would also lose the commits that follow it, and a write of a value that
    /// is there already would be acknowledged without a sync. A power cut during the checkpoint would leave the
    /// database half changed, without a WAL to complete it. So the WAL is first rewritten in place and synced. Pages
    /// that were checkpointed before may not have reached the disk either, so they are checkpointed again.
    func settle(_ writer: WriterConnection) throws(SQLiteError) {
        try writer.connection.forgetMovedPages()
        // SQLite reads nothing after the last commit.
        try Self.rewrite(database + "-wal", upTo: writer.connection.walIndex?.size ?? .max)
        guard try writer.connection.checkpoint(.passive, waiting: 0) == .complete else {
            throw SQLiteError(code: SQLITE_BUSY, message: "readers still use the WAL")
        }
        // A reader kept the WAL from being truncated, perhaps for long. Frames of a failed group after the last commit
        // would be taken for damage once commits are written before them.
        guard try writer.connection.checkpoint(.truncate, waiting: 10) == .heldUp else { return }
        try writer.connection.cutWALBehindCommits()
    }

    /// Reports erasures that the store has counted and no file has, and counts those that only the files have.
    func compareErasures(_ writer: WriterConnection) throws(SQLiteError) {
        let known = Schema.erasures(of: writer.connection)
        let found = (try? ErasuresFile.load(followedByStoreWith: options.keyRing, in: directory)) ?? []
        let count = found.reduce(0) { $0 + $1.count }
        if count < known { options.report(.erasuresMissing(count: known - count)) }
        guard count > known else { return }
        try writer.transaction { () throws(SQLiteError) in try Schema.set(erasures: count, in: writer.connection) }
    }

    /// Rewrites a WAL in place and syncs it.
    static func rewrite(_ wal: String, upTo end: Int = .max) throws(SQLiteError) {
        do {
            let descriptor = try FileDescriptor(opening: wal, O_RDWR | O_NOFOLLOW)
            var offset = 0
            while offset < end {
                let bytes = try BlockingIO.read(from: descriptor.number, at: offset, count: 1 << 20)
                if bytes.isEmpty { break }
                try BlockingIO.write(bytes[...], to: descriptor.number, at: offset)
                offset += bytes.count
            }
            if offset > 0 { try BlockingIO.synchronizeData(descriptor.number) }
        } catch {
            throw .system(error.call, of: "WAL", code: error.code)
        }
    }

    /// Opens the database as it is.
    ///
    /// - Parameters:
    ///   - mode: As for a connection.
    ///   - present: The keys of a store that was open before.
    func open(
        _ mode: SQLiteConnection.Mode, _ present: Sealing? = nil
    ) throws(SQLiteOpenError) -> Opened {
        if present == nil { warnOfMissingWAL() }
        let (connection, isNew) = try connect(mode)
        // A store that is open keeps its keys, whatever has become of the key ring's file. Otherwise they are chosen before anything is
        // changed: a store that is refused stays as it is, so that version 1.0 can open it.
        var chosen: (ring: KeyRing, newIdentity: [UInt8]?)? = present.map { ($0.ring, nil) }
        if chosen == nil, !isNew { chosen = try ring(of: connection) }
        try Schema.opening(database) { () throws(SQLiteError) in
            try configure(connection)
            if isNew { try Schema.create(connection) }
            try connection.beginMarks()
        }
        let (ring, identity) = if let chosen { chosen } else { try ring(of: connection) }
        return try Schema.opening(database) { () throws(SQLiteError) in
            let sealing = present ?? Sealing(ring)
            let writer = try WriterConnection(connection, options: options, sealing)
            if let identity { try writer.setKeyRing(identity) }
            return Opened(writer: writer, sealing: sealing)
        }
    }

    /// Refuses a WAL that does not belong to the database, and one of which SQLite would drop acknowledged commits, unless
    /// the operator has accepted that; then a copy of it is kept.
    ///
    /// The unreadable part of an accepted WAL may have been checkpointed in part, so a check of the database is
    /// requested.
    private func examineWAL() throws(SQLiteOpenError) {
        guard let fault = try WALExaminer.fault(beside: database) else { return }
        guard options.acceptsDamagedWAL, case .damagedWAL(let path, let damage, _) = fault else { throw fault }
        let copy = database + DatabaseFileName.damagedWALSuffix
        do {
            // When the store is opened again after a fault, the copy exists already, and the disk may be full. No two
            // WALs begin with the same bytes.
            if FileStatus.size(of: path) != FileStatus.size(of: copy)
                || TextFile.head(of: path, count: 32) != TextFile.head(of: copy, count: 32)
            {
                try PrivateFile.copy(path, to: copy)
                try PrivateFile.synchronize(copy)
                try PrivateFile.synchronizeFolder(of: copy)
            }
            try checkRequest.make()
        } catch {
            throw .damagedWAL(path: path, damage, copyFailure: "\(error)")
        }
        options.report(.damagedWALAccepted(path: path, damage, copy: copy))
    }

    /// Warns if a database in WAL mode has no WAL: a server leaves its WAL behind even when it stops, so a copy was made without it.
    private func warnOfMissingWAL() {
        // The read version is 2 in WAL mode (sqlite.org/fileformat2.html, section 1.3.3).
        guard TextFile.head(of: database, count: 20)?.last == 2, FileStatus(database + "-wal") == nil else { return }
        options.report(
            .own(
                .warning,
                """
                there is no \(database)-wal: if this is a copy that was made while a server ran, the tokens that were stored last are \
                missing; copy both files of a stopped server, or put a backup in their place with token-cache restore. After \
                another program has opened the files of a stopped server with SQLite, nothing is missing
                """))
    }

    func connect(
        _ mode: SQLiteConnection.Mode
    ) throws(SQLiteOpenError) -> (connection: SQLiteConnection, isNew: Bool) {
        try examineWAL()
        let connection = try Schema.opening(database) { () throws(SQLiteError) in
            try SQLiteConnection(path: database, mode: mode)
        }
        connection.waitForLocks()
        return (connection, try Schema.check(connection, path: database) == 0)
    }

    /// Creates the database's file if it is missing, so that no other user can read it: SQLite would choose another mode,
    /// and gives the `-wal` file the mode of the database.
    private func createPrivateFile() throws(SQLiteOpenError) {
        do {
            _ = try FileDescriptor(openingOrCreating: database)
        } catch {
            throw .directory(.unusable(path: directory, call: "open \(database)", code: error.code))
        }
        do {
            try Folder.synchronize(Path.folder(of: database))
        } catch {
            throw .directory(.unusable(path: directory, call: "fsync", code: error.code))
        }
    }

    private func configure(_ connection: SQLiteConnection) throws(SQLiteError) {
        // MaintenanceSchedule decides when to checkpoint.
        connection.countWALPages()
        // Overwrites deleted and replaced values with zeros. Not FAST, which leaves the pages of a long value as they are when
        // they become free.
        try connection.execute("PRAGMA secure_delete = ON")
        let mode = try connection.text("PRAGMA journal_mode = WAL")
        guard mode == "wal" else {
            throw SQLiteError(code: SQLITE_IOERR, message: "the file system does not support WAL")
        }
        try connection.execute("PRAGMA synchronous = FULL")
        // Larger than SQLite's default, as for readers: a page must be read before it can be changed.
        try connection.execute("PRAGMA cache_size = -8192")
    }

    // MARK: - Sealing

    /// The key ring of the store; an empty store gets one.
    ///
    /// - Returns: The ring, and its identity if the database does not have it yet.
    private func ring(
        of connection: SQLiteConnection
    ) throws(SQLiteOpenError) -> (ring: KeyRing, newIdentity: [UInt8]?) {
        let (identity, isEmpty) = try ringIdentity(in: connection)
        let chosen = try ring(fitting: identity, isEmpty: isEmpty)
        if chosen.isNew { options.report(.madeKeyRing(path: options.keyRing.path)) }
        if let group = options.keyRing.volumeGroup {
            options.report(.keyRingOpenToGroup(path: options.keyRing.path, group: group))
        }
        return (chosen.ring, chosen.identity == identity ? nil : chosen.identity)
    }

    /// The key ring of a store that is only read; any ring if it has neither one nor rows.
    func presentRing(of connection: SQLiteConnection) throws(SQLiteOpenError) -> KeyRing {
        let (identity, isEmpty) = try ringIdentity(in: connection)
        return identity.isEmpty && isEmpty ? .random(createdAt: 0) : try ring(fitting: identity, isEmpty: false).ring
    }

    /// The identity of the ring that has sealed a database, empty if none has, and whether the database has no rows.
    func ringIdentity(
        in connection: SQLiteConnection
    ) throws(SQLiteOpenError) -> (identity: [UInt8], isEmpty: Bool) {
        try Schema.opening(database) { () throws(SQLiteError) in
            // A damaged page shows that there was a row.
            let isEmpty = (try? Schema.isEmpty(connection)) ?? false
            let select = try SQLiteStatement("SELECT key_ring FROM store", on: connection)
            defer { select.reset() }
            return (try select.step() ? select.blob(at: 0) : [], isEmpty)
        }
    }

    private func ring(fitting identity: [UInt8], isEmpty: Bool) throws(SQLiteOpenError) -> KeyRingChoice {
        do {
            return try options.keyRing.ring(
                fitting: identity, isEmpty: isEmpty, of: "the store \(database)")
        } catch {
            throw .shared(error)
        }
    }
}
