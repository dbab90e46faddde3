internal import CSQLite

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

    package var description: String {
        "\(message) (SQLite code \(code), in: \(sql.split(whereSeparator: \.isWhitespace).joined(separator: " ")))"
    }

    /// The code without its extension.
    var primaryCode: Int32 { code & 0xff }

    /// The file is not a database or is damaged.
    var isNotADatabase: Bool { primaryCode == SQLITE_NOTADB || primaryCode == SQLITE_CORRUPT }

    /// The fault is this statement's alone, so that the others of its transaction can go on.
    var isOfOneStatement: Bool {
        primaryCode == SQLITE_TOOBIG || primaryCode == SQLITE_CONSTRAINT || primaryCode == SQLITE_MISMATCH
    }
}
