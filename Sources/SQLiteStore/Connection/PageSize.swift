/// Bytes of a database's page.
enum PageSize {
    /// The page size of new databases.
    ///
    /// A commit writes every page that it changes as a whole, so small pages write less. Compared with pages of 4 KiB, those of
    /// 2 KiB wrote half as much per POST for tokens of 330 bytes, and two thirds as much for a mixture of up to 8 KiB. Pages of
    /// 1 KiB write still less for short tokens, but cost more processor time for long ones, which span several pages.
    static let ofNew = 2_048

    /// The smallest that SQLite allows (sqlite.org/fileformat2.html, section 1.3.2).
    static let least = 512

    /// Gives a new database its page size.
    ///
    /// Has no effect if the database has content or is in WAL mode (sqlite.org/pragma.html#pragma_page_size).
    static func choose(for connection: SQLiteConnection) throws(SQLiteError) {
        try connection.execute("PRAGMA page_size = \(ofNew)")
    }
}
