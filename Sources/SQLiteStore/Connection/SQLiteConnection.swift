import CSQLite
import Metrics
import System

/// A connection to a database file.
///
/// Its owner uses it on one thread at a time.
@safe final class SQLiteConnection {
    /// For the types that are built on a connection: statements and copies.
    let handle: OpaquePointer
    let path: String

    /// Pages in the WAL after the last commit of this connection, once `countWALPages` was called.
    private(set) var walPages = 0

    /// How far checkpoints have come; nil if this connection leaves no marks.
    var progress: Progress?

    /// Bytes of a page; `Schema.check` refuses other databases.
    ///
    /// A commit writes every page that it changes as a whole, so small pages write less. Compared with pages of 4 KiB, those of
    /// 2 KiB wrote half as much per POST for tokens of 330 bytes, and two thirds as much for a mixture of up to 8 KiB. Pages of
    /// 1 KiB write still less for short tokens, but cost more processor time for long ones, which span several pages.
    static let pageSize = 2_048

    enum Mode {
        /// Also creates the file.
        case readWriteCreate
        case readWrite
        /// Refuses statements that change something. The file is opened for writing all the same: a read-only one would
        /// not take part in the lock that keeps other processes out, and would make the WAL's index a file.
        case readOnly
        /// Reads only the database's file, as if nobody could change it: takes no locks, makes no files, and ignores
        /// the WAL (sqlite.org/c3ref/open.html, "immutable"). For examining a store whose server is not running.
        case immutable
        /// A copy that is being made, in memory; see `CopyFile`.
        case copy
    }

    init(path: String, mode: Mode) throws(SQLiteError) {
        var handle: OpaquePointer?
        // No mutex, because no two threads use a connection at once. A URI only for `immutable`, so that other paths
        // are taken literally.
        let access =
            switch mode {
            case .readWriteCreate, .copy: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
            case .readWrite, .readOnly: SQLITE_OPEN_READWRITE
            case .immutable: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI
            }
        let flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | access
        let fileSystem =
            switch mode {
            case .readWriteCreate, .readWrite, .readOnly: WALFileSystem.name
            case .immutable: String?.none
            case .copy: CopyFile.fileSystem
            }
        guard fileSystem != nil || mode == .immutable else {
            throw SQLiteError(code: SQLITE_ERROR, message: "this SQLite has no file system unix-excl")
        }
        // If this were a pipe, SQLite would wait for its writer.
        if let status = FileStatus(path), !status.isFile {
            throw .system("open", of: "database", code: SystemError.notPlain)
        }
        let name = mode == .immutable ? Self.stillName(path) : path
        let code = unsafe sqlite3_open_v2(name, &handle, flags, fileSystem)
        guard let opened = unsafe handle else {
            throw SQLiteError(code: code, message: "out of memory")
        }
        unsafe self.handle = unsafe opened
        self.path = path
        if code != SQLITE_OK { throw lastError }
        unsafe csqlite_distrust_file(opened)
        _ = unsafe csqlite_disable_checkpoint_on_close(opened)
        if mode == .readOnly { try execute("PRAGMA query_only = ON") }
    }

    deinit {
        // With _v2 the connection is closed when its last statement is finalized.
        _ = unsafe sqlite3_close_v2(handle)
    }

    /// A path as a URI, in which `?`, `#` and `%` are escaped.
    private static func stillName(_ path: String) -> String {
        let escaped = path.utf8.map { byte in
            let isPlain = (0x61...0x7a).contains(byte) || (0x41...0x5a).contains(byte) || (0x2d...0x39).contains(byte)
            return isPlain ? String(UnicodeScalar(byte)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }
        return "file:\(escaped.joined())?immutable=1"
    }

    /// Counts the WAL's pages at each commit (sqlite.org/c3ref/wal_hook.html), instead of automatic checkpoints.
    func countWALPages() {
        // Unretained: SQLite calls back only within calls on this connection.
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        _ = unsafe sqlite3_wal_hook(
            handle,
            { context, _, _, pages in
                guard let context = unsafe context else { return SQLITE_OK }
                let connection = unsafe Unmanaged<SQLiteConnection>.fromOpaque(context).takeUnretainedValue()
                connection.walPages = Int(pages)
                return SQLITE_OK
            }, context
        )
    }

    /// Measures the WAL's syncs, on the connection's thread.
    ///
    /// The WAL must be open, as it is after a first read.
    func measureSyncs(into histogram: Histogram) {
        wal?.syncTime = histogram
    }

    /// The WAL as this connection has it open; nil before it is.
    var wal: WALWriteBuffer? {
        var file: UnsafeMutablePointer<sqlite3_file>?
        guard unsafe sqlite3_file_control(handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) == SQLITE_OK else {
            return nil
        }
        return unsafe WALWriteBuffer.opened(as: file)
    }

    /// The database's file, which SQLite has opened with the connection; not for a database in memory.
    var file: UnsafeMutablePointer<sqlite3_file>? {
        var file: UnsafeMutablePointer<sqlite3_file>?
        _ = unsafe sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &file)
        return unsafe file
    }

    /// Bytes of the database's file; 0 if unknown.
    var fileSize: Int {
        var size: sqlite3_int64 = 0
        guard let file = unsafe file, unsafe file.pointee.pMethods.pointee.xFileSize(file, &size) == SQLITE_OK else {
            return 0
        }
        return Int(size)
    }

    /// Reads the database's file directly, bypassing the connection's page cache; false after an error.
    ///
    /// Uses the connection's descriptor, because closing another one would release SQLite's locks on the file
    /// (sqlite.org/howtocorrupt.html, section 2.2).
    ///
    /// - Parameters:
    ///   - offset: From the file's beginning.
    ///   - bytes: Filled from the file, with zeros after its end; fewer than 128 KiB.
    func readFile(at offset: Int, into bytes: inout [UInt8]) -> Bool {
        guard let file = unsafe file else { return false }
        return unsafe bytes.withUnsafeMutableBytes { bytes in
            let code = unsafe file.pointee.pMethods.pointee.xRead(
                file, bytes.baseAddress, Int32(bytes.count), sqlite3_int64(offset)
            )
            return code == SQLITE_OK || code == CSQLITE_IOERR_SHORT_READ
        }
    }

    /// Syncs what any connection has written to the database's file.
    ///
    /// - Returns: SQLite's result code.
    func synchronizeFile() -> Int32 {
        guard let file = unsafe file else { return SQLITE_OK }
        return unsafe file.pointee.pMethods.pointee.xSync(file, SQLITE_SYNC_NORMAL)
    }

    /// The error of the call that was just made.
    var lastError: SQLiteError {
        let code = unsafe sqlite3_extended_errcode(handle)
        let message = unsafe String(cString: sqlite3_errmsg(handle))
        // SQLite keeps the system's reason of these errors only.
        let isOfSystem = [SQLITE_IOERR, SQLITE_CANTOPEN].contains(code & 0xff)
        let reason = isOfSystem ? unsafe sqlite3_system_errno(handle) : 0
        guard reason != 0 else { return SQLiteError(code: code, message: message) }
        let error = SystemError(call: "", code: reason)
        return SQLiteError(code: code, message: "\(message): \(error.reason)\(error.shortageAdvice ?? "")")
    }

    /// True between BEGIN and the end of its transaction; SQLite ends it by itself after some errors.
    var isInTransaction: Bool { unsafe sqlite3_get_autocommit(handle) == 0 }

    /// How many rows the last statement changed.
    var changeCount: Int { unsafe Int(sqlite3_changes64(handle)) }

    /// Numbers that differ from those before a transaction if it has changed rows or tables.
    func changes() throws(SQLiteError) -> [Int] {
        [unsafe Int(sqlite3_total_changes64(handle)), try integer("PRAGMA schema_version")]
    }

    /// What a checkpoint does besides moving pages; with SQLite's number.
    enum CheckpointMode: Int32 {
        /// Nothing; it does not wait.
        case passive = 0
        /// Waits for readers; the next commit writes the WAL from its beginning.
        case restart = 2
        /// The same, and truncates the WAL.
        case truncate = 3
    }

    /// How a checkpoint ended.
    enum CheckpointOutcome {
        /// All of the WAL is in the database.
        case complete
        /// Readers still need a part of the WAL.
        case heldUp
    }

    /// Moves the WAL into the database as far as readers allow (sqlite.org/c3ref/wal_checkpoint_v2.html).
    ///
    /// - Parameters:
    ///   - mode: What it does besides.
    ///   - milliseconds: How long readers are waited for.
    func checkpoint(_ mode: CheckpointMode, waiting milliseconds: Int32) throws(SQLiteError) -> CheckpointOutcome {
        var (logged, moved): (Int32, Int32) = (0, 0)
        _ = unsafe sqlite3_busy_timeout(handle, milliseconds)
        defer { _ = unsafe sqlite3_busy_timeout(handle, Self.busyMilliseconds) }
        let number = try beginCheckpoint()
        if let file = unsafe file { unsafe MarkedDatabase.setNumber(number, of: file) }
        wal?.endMark = endMark
        let code = unsafe sqlite3_wal_checkpoint_v2(handle, nil, mode.rawValue, &logged, &moved)
        // Negative if no WAL is open, as before the first read: nothing was moved.
        let isComplete = logged == moved && logged >= 0
        switch code {
        case SQLITE_OK where isComplete:
            if mode != .passive { walPages = 0 }
            if let number { progress?.complete = number & 0xff_ffff }
            progress?.startsRound = true
            return .complete
        case SQLITE_OK, SQLITE_BUSY: return .heldUp
        default: throw lastError
        }
    }

    /// How long a statement waits for a lock.
    ///
    /// Our own readers never hold a lock that the writer needs for long; this is for the start, when another program
    /// may have the database open.
    private static let busyMilliseconds: Int32 = 250

    /// Makes statements wait for a lock.
    func waitForLocks(milliseconds: Int32 = busyMilliseconds) {
        _ = unsafe sqlite3_busy_timeout(handle, milliseconds)
    }

    /// Gives up safety for speed, for a file that is thrown away after an error or a crash.
    ///
    /// There is no journal and no WAL, so transactions cannot be rolled back, and no sync.
    func giveUpSafety() throws(SQLiteError) {
        unsafe csqlite_allow_no_journal(handle)
        guard try text("PRAGMA journal_mode = OFF") == "off" else {
            throw SQLiteError(code: SQLITE_ERROR, message: "the journal stays")
        }
        try execute("PRAGMA synchronous = OFF")
    }

    /// Runs statements that return nothing of interest.
    func execute(_ sql: String) throws(SQLiteError) {
        guard unsafe sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else { throw lastError }
    }

    /// The first column of the first row as a number, 0 when there is none.
    func integer(_ sql: String) throws(SQLiteError) -> Int {
        let statement = try SQLiteStatement(sql, on: self)
        return try statement.step() ? statement.integer(at: 0) : 0
    }

    /// The first column of the first row as text, empty when there is none.
    func text(_ sql: String) throws(SQLiteError) -> String {
        let statement = try SQLiteStatement(sql, on: self)
        guard try statement.step() else { return "" }
        let text = String(decoding: statement.blob(at: 0), as: UTF8.self)
        // A pragma that changes the database commits only after its row, and may fail then.
        _ = try statement.step()
        return text
    }
}
