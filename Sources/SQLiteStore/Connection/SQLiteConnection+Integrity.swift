extension SQLiteConnection {
    /// Checks that every page of the database is sound; takes time in proportion to its size.
    func checkIntegrity() throws(SQLiteError) {
        let result = try readingChildrenAhead { () throws(SQLiteError) in try text("PRAGMA integrity_check(1)") }
        guard result == "ok" else { throw .damaged(Self.finding(result)) }
    }

    /// What an integrity check has found, without the heading `*** in database main ***` of some findings.
    static func finding(_ text: String) -> String {
        text.split(separator: "\n").filter { !$0.hasPrefix("***") }.joined(separator: "; ")
    }

    /// Checks that a store's database has no pages from both before and after lost commits, as far as its content shows
    /// that; takes time in proportion to its size.
    ///
    /// Pages can fit together although rows are missing: a lost commit has moved rows to a page that did not exist
    /// before it, so the page is gone and nothing refers to it. Then the store has counted other rows than there are, unless
    /// just as many rows of lost commits are there.
    func checkForMixedPages() throws(SQLiteError) {
        try checkIntegrity()
        let counted = try integer("SELECT tokens FROM store")
        // The table itself, not an index.
        let found = try integer("SELECT count(*) FROM token NOT INDEXED")
        guard found == counted else {
            throw .damaged("the store has counted \(counted) tokens, but \(found) are there")
        }
    }
}
