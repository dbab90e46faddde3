import CSQLite
import TokenStore

/// A prepared statement, finalized in `deinit`.
///
/// Used on its connection's thread.
@safe final class SQLiteStatement {
    private let handle: OpaquePointer
    private let connection: SQLiteConnection

    init(_ sql: String, on connection: SQLiteConnection) throws(SQLiteError) {
        var handle: OpaquePointer?
        let code = unsafe sqlite3_prepare_v3(
            connection.handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &handle, nil
        )
        guard code == SQLITE_OK, let prepared = unsafe handle else { throw connection.lastError }
        unsafe self.handle = unsafe prepared
        self.connection = connection
    }

    deinit {
        _ = unsafe sqlite3_finalize(handle)
    }

    /// Binds bytes without copying them and runs `body`, which steps the statement; then resets the statement and
    /// unbinds the bytes.
    ///
    /// - Parameters:
    ///   - bytes: The value; empty ones are not bound as NULL.
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
            guard code == SQLITE_OK else { throw connection.lastError }
            return try body()
        }
    }

    /// Binds a number until the next one is bound in its place; nil is NULL.
    func bind(_ number: Int64?, at index: Int32) throws(SQLiteError) {
        let code =
            if let number { unsafe sqlite3_bind_int64(handle, index, number) } else {
                unsafe sqlite3_bind_null(handle, index)
            }
        guard code == SQLITE_OK else { throw connection.lastError }
    }

    /// Binds a copy of bytes until others are bound in their place.
    func bind(_ bytes: [UInt8], at index: Int32) throws(SQLiteError) {
        let code = unsafe csqlite_bind_copy(handle, index, bytes, Int32(bytes.count))
        guard code == SQLITE_OK else { throw connection.lastError }
    }

    /// Binds copies of all columns of another statement's current row, in their order.
    func bindRow(of row: SQLiteStatement) throws(SQLiteError) {
        for column in 0..<(unsafe sqlite3_column_count(row.handle)) {
            let code = unsafe sqlite3_bind_value(handle, column + 1, sqlite3_column_value(row.handle, column))
            guard code == SQLITE_OK else { throw connection.lastError }
        }
    }

    /// Goes to the next row; false when there is none.
    func step() throws(SQLiteError) -> Bool {
        switch unsafe sqlite3_step(handle) {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        default: throw connection.lastError
        }
    }

    /// Runs a statement that returns no rows.
    func run() throws(SQLiteError) {
        defer { reset() }
        _ = try step()
    }

    /// Resets the statement, and ends the read transaction that it held.
    func reset() {
        _ = unsafe sqlite3_reset(handle)
    }

    func integer(at column: Int32) -> Int {
        Int(unsafe sqlite3_column_int64(handle, column))
    }

    func isNull(at column: Int32) -> Bool {
        unsafe sqlite3_column_type(handle, column) == SQLITE_NULL
    }

    /// Nil for NULL.
    func optionalInteger(at column: Int32) -> Int64? {
        isNull(at: column) ? nil : Int64(integer(at: column))
    }

    /// Calls `body` with a column's bytes; it must not step the statement.
    func withBlob<Result, Failure>(
        at column: Int32, _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let pointer = unsafe sqlite3_column_blob(handle, column)
        let count = Int(unsafe sqlite3_column_bytes(handle, column))
        // An empty value has no pointer.
        guard let start = unsafe pointer?.assumingMemoryBound(to: UInt8.self) else { return try body(Span()) }
        return unsafe try body(Span(_unsafeStart: start, count: count))
    }

    /// A column's bytes.
    func blob(at column: Int32) -> [UInt8] {
        guard let pointer = unsafe sqlite3_column_blob(handle, column) else { return [] }
        let count = Int(unsafe sqlite3_column_bytes(handle, column))
        return unsafe Array(UnsafeRawBufferPointer(start: pointer, count: count))
    }
}

/// The SQLite library that is linked.
enum SQLiteLibrary {
    /// For example `3.40.1`.
    static var version: String { unsafe String(cString: sqlite3_libversion()) }

    static var software: StoreSoftware { StoreSoftware(name: "SQLite", version: version) }
}
