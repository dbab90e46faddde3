import CSQLite
import Testing

@testable import SQLiteStore

/// What operators read of an error of SQLite's.
struct ErrorTextTests {
    @Test(
        arguments: [
            ("SELECT key_ring, tokens\n  FROM store", "while reading"),
            ("INSERT INTO token VALUES (?1)", "while writing"),
            ("delete from session", "while writing"), ("COMMIT", "in a transaction"),
            ("PRAGMA integrity_check", "while setting up or checking the database"), ("open WAL", "at: open WAL"),
        ]
    )
    func `an error says what was being done, and shows no statement`(sql: String, activity: String) {
        let error = SQLiteError(code: SQLITE_CORRUPT, message: "database disk image is malformed", sql: sql)
        #expect("\(error)" == "database disk image is malformed (SQLite code 11, \(activity))")
    }
}
