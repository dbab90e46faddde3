internal import CSQLite
internal import Glibc
internal import System

/// What SQLite said: the extended result code and its text.
///
/// Holds no bound value.
package struct SQLiteError: Error, Hashable, CustomStringConvertible {
    /// An extended result code (sqlite.org/rescode.html).
    package let code: Int32
    package let message: String
    /// The statement, with its parameters unbound.
    package let sql: String

    init(code: Int32, message: String, sql: String) {
        self.code = code
        self.message = message
        self.sql = sql
    }

    /// What the system said of a call of our own on one of the database's files.
    static func system(_ call: String, of file: String, code: Int32 = errno) -> SQLiteError {
        SQLiteError(
            code: code == ENOSPC || code == EDQUOT ? SQLITE_FULL : SQLITE_IOERR,
            message: SystemError.reason(code), sql: "\(call) \(file)"
        )
    }

    /// What an integrity check has found.
    static func damaged(_ finding: String) -> SQLiteError {
        SQLiteError(code: SQLITE_CORRUPT, message: finding, sql: "PRAGMA integrity_check")
    }

    package var description: String {
        "\(message) (SQLite code \(code), in: \(sql.split(whereSeparator: \.isWhitespace).joined(separator: " ")))"
    }

    /// The code without its extension.
    var primaryCode: Int32 { code & 0xff }

    /// There is no room left.
    var isDiskFull: Bool { primaryCode == SQLITE_FULL }

    /// Somebody else has it locked.
    var isBusy: Bool { primaryCode == SQLITE_BUSY }

    /// The file is not a database or is damaged.
    var isNotADatabase: Bool { primaryCode == SQLITE_NOTADB || primaryCode == SQLITE_CORRUPT }

    /// This user may not do it, or not here.
    var isRefusal: Bool {
        primaryCode == SQLITE_PERM || primaryCode == SQLITE_CANTOPEN || primaryCode == SQLITE_READONLY
    }

    /// It was refused in full, and what the connection knows is still true: no room, or a lock of somebody else's.
    var isOfMoment: Bool {
        primaryCode == SQLITE_FULL || primaryCode == SQLITE_BUSY || primaryCode == SQLITE_LOCKED
            || primaryCode == SQLITE_NOMEM || isOfOneStatement
    }

    /// The fault is this statement's alone, so that the others of its transaction can go on.
    var isOfOneStatement: Bool {
        primaryCode == SQLITE_TOOBIG || primaryCode == SQLITE_CONSTRAINT || primaryCode == SQLITE_MISMATCH
    }
}
