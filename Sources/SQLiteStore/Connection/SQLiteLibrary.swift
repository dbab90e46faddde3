internal import CSQLite
internal import TokenStore

/// The SQLite library that is linked.
enum SQLiteLibrary {
    /// For example `3.40.1`.
    static var version: String { unsafe String(cString: sqlite3_libversion()) }

    static var software: StoreSoftware { StoreSoftware(name: "SQLite", version: version) }
}
