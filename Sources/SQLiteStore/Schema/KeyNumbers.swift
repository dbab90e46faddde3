internal import TokenStore

/// The numbers of the keys that rows are sealed with, as far as a look at the first rows shows.
///
/// No index has them, so looking at every row would take as long as reading the whole database. The first tokens are a random
/// sample, because a keyed hash chooses their slots; the same holds for sessions. So a key that has sealed every token is always
/// found, and one that has sealed a fifth of them is missed by a look at 32 rows in one case of a thousand. `token-cache verify`
/// looks at all rows.
enum KeyNumbers {
    /// How many rows a start looks at: a millisecond, whatever the size of the store.
    static let rowsOfStart = 32
    /// How many rows are looked at for an operator: a fraction of a second, and exact in stores that have no more.
    static let rowsForOperator = 100_000

    /// - Parameters:
    ///   - connection: A sealed database.
    ///   - limit: How many tokens, and how many sessions, are looked at.
    static func read(_ connection: SQLiteConnection, rows limit: Int) throws(SQLiteError) -> Set<Int> {
        var numbers: Set<Int> = []
        for table in ["token", "session"] {
            // Without the inner query, LIMIT would count numbers instead of rows.
            let select = try SQLiteStatement(
                "SELECT DISTINCT key_number FROM (SELECT key_number FROM \(table) LIMIT \(limit))", on: connection)
            while try select.step() { numbers.insert(select.integer(at: 0)) }
        }
        return numbers
    }

    /// The numbers of the keys that a ring lacks, in ascending order.
    static func missing(
        in ring: KeyRing, _ connection: SQLiteConnection, rows limit: Int
    ) throws(SQLiteError) -> [Int] {
        try read(connection, rows: limit).filter { ring.numberedKey($0) == nil }.sorted()
    }
}
