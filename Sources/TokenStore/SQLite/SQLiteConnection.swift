internal import CSQLite

/// A connection to a database file, used by one thread at a time, which its owner sees to.
@safe final class SQLiteConnection {
    fileprivate let handle: OpaquePointer

    enum Mode {
        case readWriteCreate
        case readOnly
    }

    /// The version of the library that is linked, for example `3.40.1`.
    static var libraryVersion: String { unsafe String(cString: sqlite3_libversion()) }

    init(path: String, mode: Mode) throws(SQLiteError) {
        var handle: OpaquePointer?
        // No mutex: no two threads are in a connection at once. No SQLite URI either: a path is only a path.
        let flags =
            SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE
            | (mode == .readOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
        let code = unsafe sqlite3_open_v2(path, &handle, flags, nil)
        guard let opened = unsafe handle else {
            throw SQLiteError(code: code, message: "out of memory", sql: "open")
        }
        unsafe self.handle = unsafe opened
        if code != SQLITE_OK { throw lastError("open") }
        _ = unsafe csqlite_enable_defensive(opened)
        _ = unsafe csqlite_disable_checkpoint_on_close(opened)
    }

    deinit {
        // With _v2 the connection goes when its last statement does.
        _ = unsafe sqlite3_close_v2(handle)
    }

    /// The error of the call that was just made.
    func lastError(_ sql: String) -> SQLiteError {
        SQLiteError(
            code: unsafe sqlite3_extended_errcode(handle),
            message: unsafe String(cString: sqlite3_errmsg(handle)),
            sql: sql
        )
    }

    /// True between BEGIN and the end of its transaction; SQLite ends it by itself after some errors.
    var isInTransaction: Bool { unsafe sqlite3_get_autocommit(handle) == 0 }

    /// Runs statements that return nothing of interest.
    func execute(_ sql: String) throws(SQLiteError) {
        guard unsafe sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else { throw lastError(sql) }
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
        var bytes: [UInt8] = []
        statement.appendBlob(at: 0, to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }
}

/// A prepared statement, finalized when it goes.
///
/// Used on its connection's thread.
@safe final class SQLiteStatement {
    private let handle: OpaquePointer
    private let connection: SQLiteConnection
    private let sql: String

    init(_ sql: String, on connection: SQLiteConnection) throws(SQLiteError) {
        var handle: OpaquePointer?
        let code = unsafe sqlite3_prepare_v3(
            connection.handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &handle, nil
        )
        guard code == SQLITE_OK, let prepared = unsafe handle else { throw connection.lastError(sql) }
        unsafe self.handle = unsafe prepared
        self.connection = connection
        self.sql = sql
    }

    deinit {
        _ = unsafe sqlite3_finalize(handle)
    }

    /// Binds bytes without copying them while `body` runs, which steps the statement; then resets and unbinds.
    ///
    /// - Parameters:
    ///   - bytes: The value, also when empty never NULL.
    ///   - index: The parameter's number, from 1.
    ///   - body: Steps and reads columns. Nothing of the row is valid after it.
    func withBinding<Result>(
        _ bytes: [UInt8], at index: Int32, _ body: () throws(SQLiteError) -> Result
    ) throws(SQLiteError) -> Result {
        unsafe try bytes.withUnsafeBufferPointer { (buffer) throws(SQLiteError) -> Result in
            let code =
                if let base = buffer.baseAddress, !buffer.isEmpty {
                    // A nil destructor is SQLITE_STATIC: the array stays where it is until this closure returns.
                    unsafe sqlite3_bind_blob64(handle, index, base, UInt64(buffer.count), nil)
                } else {
                    // A null pointer would bind NULL.
                    unsafe sqlite3_bind_zeroblob(handle, index, 0)
                }
            defer {
                reset()
                _ = unsafe sqlite3_bind_null(handle, index)
            }
            guard code == SQLITE_OK else { throw connection.lastError(sql) }
            return try body()
        }
    }

    func bind(_ number: Int64, at index: Int32) throws(SQLiteError) {
        guard unsafe sqlite3_bind_int64(handle, index, number) == SQLITE_OK else { throw connection.lastError(sql) }
    }

    /// Goes to the next row; false when there is none.
    func step() throws(SQLiteError) -> Bool {
        switch unsafe sqlite3_step(handle) {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        default: throw connection.lastError(sql)
        }
    }

    /// Runs a statement that returns no rows.
    func run() throws(SQLiteError) {
        defer { reset() }
        _ = try step()
    }

    /// Ends the statement's turn, and with it the read transaction that it held.
    func reset() {
        _ = unsafe sqlite3_reset(handle)
    }

    func integer(at column: Int32) -> Int {
        Int(unsafe sqlite3_column_int64(handle, column))
    }

    /// Appends a column's bytes.
    func appendBlob(at column: Int32, to bytes: inout [UInt8]) {
        guard let pointer = unsafe sqlite3_column_blob(handle, column) else { return }
        let count = Int(unsafe sqlite3_column_bytes(handle, column))
        unsafe bytes.append(contentsOf: UnsafeRawBufferPointer(start: pointer, count: count))
    }
}
