internal import CSQLite
internal import TokenStore

/// The SQLite library that is linked.
enum SQLiteLibrary {
    /// For example `3.40.1`.
    static var version: String { unsafe String(cString: sqlite3_libversion()) }

    static var software: StoreSoftware { software(version: version, hasWALResetBug: hasWALResetBug) }

    static func software(version: String, hasWALResetBug: Bool) -> StoreSoftware {
        let bug = StoreSoftware.Defect(
            "the WAL-reset bug, which token-cache avoids by writing through a single connection",
            advice: "do not open the database with other programs; the bug is fixed in 3.51.3, 3.50.7 and 3.44.6"
        )
        return StoreSoftware(name: "SQLite", version: version, defect: hasWALResetBug ? bug : nil)
    }

    /// Whether it has the WAL-reset bug, which can lose a commit when two connections commit or checkpoint at one instant.
    ///
    /// Present in 3.7.0 to 3.51.2, except in 3.44.6 and 3.50.7, where it is fixed (sqlite.org/wal.html).
    private static var hasWALResetBug: Bool { hasWALResetBug(Int(sqlite3_libversion_number())) }

    /// - Parameter number: As in `sqlite3_libversion_number`: 3.40.1 is 3040001.
    static func hasWALResetBug(_ number: Int) -> Bool {
        switch number {
        case 3_044_006..<3_045_000, 3_050_007..<3_051_000: false
        default: (3_007_000..<3_051_003).contains(number)
        }
    }
}
