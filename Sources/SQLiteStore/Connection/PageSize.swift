/// Bytes of a database's page.
enum PageSize {
    /// Of new databases; earlier ones keep theirs until they are copied row by row.
    ///
    /// Each commit writes whole pages, of which one holds few rows. With tokens of 330 bytes, pages of 2 KiB write half as much as
    /// those of 4 KiB, and two thirds with a mixture up to 8 KiB; those of 1 KiB write less still for short tokens, but take more
    /// processor time for long ones, whose rows span several pages.
    static let ofNew = 2_048

    static let ofEarlier = 4_096

    /// Gives a database its size; has an effect only on one without content that is not in WAL mode
    /// (sqlite.org/pragma.html#pragma_page_size).
    static func choose(for connection: SQLiteConnection) throws(SQLiteError) {
        try connection.execute("PRAGMA page_size = \(ofNew)")
    }
}
