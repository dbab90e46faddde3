import CSQLite
import Glibc
import System
import TokenStore

/// An error of SQLite: the extended result code and its text.
///
/// Holds no bound value.
package struct SQLiteError: Error, Hashable, CustomStringConvertible {
    /// An extended result code (sqlite.org/rescode.html).
    let code: Int32
    let message: String

    init(code: Int32, message: String) {
        self.code = code
        self.message = message
    }

    /// An error of a system call that this program has made on one of the database's files.
    static func system(_ call: String, of file: String, code: Int32 = errno) -> SQLiteError {
        SQLiteError(
            code: code == ENOSPC || code == EDQUOT ? SQLITE_FULL : SQLITE_IOERR,
            message: "\(call) \(file): \(SystemError.reason(code))"
        )
    }

    /// A finding of an integrity check.
    static func damaged(_ finding: String) -> SQLiteError {
        SQLiteError(code: SQLITE_CORRUPT, message: finding)
    }

    package var description: String { "\(message) (SQLite code \(code))" }

    /// The code without its extension.
    var primaryCode: Int32 { code & 0xff }

    /// Whether the disk is full.
    var isDiskFull: Bool { primaryCode == SQLITE_FULL }

    /// Whether another connection or process holds the lock.
    var isBusy: Bool { primaryCode == SQLITE_BUSY }

    /// The file is not a database or is damaged.
    var isNotADatabase: Bool { primaryCode == SQLITE_NOTADB || primaryCode == SQLITE_CORRUPT }

    /// Whether a page that the statement needs is damaged; others may not be.
    var isOfOnePage: Bool { primaryCode == SQLITE_CORRUPT }

    /// Whether the statement had no effect and the connection's state is still valid: the disk is full, or something is
    /// locked.
    var isTransient: Bool {
        primaryCode == SQLITE_FULL || primaryCode == SQLITE_BUSY || primaryCode == SQLITE_LOCKED
            || primaryCode == SQLITE_NOMEM || isOfOneStatement
    }

    /// Whether only this statement has failed, so that others of its transaction can continue.
    var isOfOneStatement: Bool {
        primaryCode == SQLITE_TOOBIG || primaryCode == SQLITE_CONSTRAINT || primaryCode == SQLITE_MISMATCH
    }
}

extension StoreFault {
    /// - Parameter isOfDatabase: Whether the error concerns the database as a whole, whatever its code.
    init(_ error: SQLiteError, isOfDatabase: Bool = false) {
        self.init(
            "\(error)", cause: error.isDiskFull ? .diskFull : .database,
            mayRetry: error.isTransient && !error.isOfOneStatement,
            isOfOneToken: !isOfDatabase && (error.isOfOneStatement || error.isOfOnePage)
        )
    }
}

extension StoreError {
    /// Runs a closure, and throws its errors as errors of a read.
    static func reading<Value>(_ body: () throws(SQLiteError) -> Value) throws(StoreError) -> Value {
        do {
            return try body()
        } catch {
            throw .read(StoreFault(error))
        }
    }

    /// Runs a closure, and throws its errors as errors of a write.
    static func writing<Value>(_ body: () throws(SQLiteError) -> Value) throws(StoreError) -> Value {
        do {
            return try body()
        } catch {
            throw .write(StoreFault(error))
        }
    }

    /// The files were removed, truncated or replaced while they were open, as the text says.
    static func vanished(_ text: String) -> StoreError {
        .unavailable(StoreFault(text, cause: .vanished, mayRetry: true))
    }
}
