internal import CSQLite

/// The SQLite library that is linked.
package enum SQLiteLibrary {
    /// For example `3.40.1`.
    package static var version: String { unsafe String(cString: sqlite3_libversion()) }

    /// Whether it has the WAL-reset bug, which can lose a commit when two connections commit or checkpoint at one instant.
    ///
    /// In 3.7.0 to 3.51.2, and mended in 3.44.6 and 3.50.7 as well (sqlite.org/wal.html).
    package static var hasWALResetBug: Bool { hasWALResetBug(Int(sqlite3_libversion_number())) }

    /// - Parameter number: As in `sqlite3_libversion_number`: 3.40.1 is 3040001.
    static func hasWALResetBug(_ number: Int) -> Bool {
        switch number {
        case 3_044_006..<3_045_000, 3_050_007..<3_051_000: false
        default: (3_007_000..<3_051_003).contains(number)
        }
    }
}
