internal import TokenStore

/// Numbers states of the database, so that a database and a WAL that do not belong together are told apart.
///
/// SQLite applies any WAL with right checksums to the database beside it, even to a backup that was copied over the database by
/// hand, which it then destroys silently. So states have *marks*, in the first page (see `Schema.userVersion`):
///
/// - The first commit after a complete checkpoint, with which SQLite begins the WAL anew, has the next mark.
/// - Each checkpoint ends at a commit with a mark: if the last commit has none, an empty one with the next mark follows it.
/// - The first of these empty commits after the store was opened has a random mark, and so has each backup. So two copies of a
///   store have different marks as soon as both were changed.
///
/// The database alone then has a mark of one of the WAL's commits, or the one before the first (see `WALExaminer`), unless the
/// two do not belong together. Not every commit has a mark, because each would write one more page.
///
/// A checkpoint ends at another commit only if the disk is too full for one more, or if something reads the last commit when
/// the store is opened again after a fault. What no mark shows: a database that was copied while a checkpoint wrote to it, or
/// that has a part of a WAL and lies beside an empty one.
///
/// Used on its connection's thread.
struct StateMark {
    /// How many marks there are; the next one after the last is 0.
    static let count = 1 << 23

    private let connection: SQLiteConnection
    /// The mark of the last commit that has one, and the one that the open transaction writes.
    private var (stored, written): (Int, Int)
    /// Whether the last commit has a mark.
    private(set) var isAtLastCommit = false
    /// Whether a random mark was given since the store was opened.
    private(set) var isRandom = false

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        self.connection = connection
        stored = Schema.mark(ofUserVersion: try connection.integer("PRAGMA user_version"))
        written = stored
    }

    static func random() -> Int { .random(in: 0..<count) }

    static func next(after mark: Int) -> Int { (mark + 1) % count }

    /// Whether the open transaction would be the first after a complete checkpoint, as far as is known.
    private var isFirst: Bool { connection.walCommits ?? 0 == 0 }

    /// Which transactions get a mark.
    enum Need {
        /// The first in the WAL.
        case ifFirst
        /// Any, whether it is the first in the WAL or not.
        case always
        /// A transaction that is not the first in the WAL.
        case afterOthers
    }

    /// Gives the open transaction a mark.
    mutating func write(_ need: Need) throws(SQLiteError) {
        guard need != .ifFirst || isFirst else { return }
        let mark = isRandom || need != .afterOthers && isFirst ? Self.next(after: stored) : Self.random()
        try connection.execute("PRAGMA user_version = \(Schema.userVersion(mark: mark))")
        written = mark
    }

    /// The transaction was committed, and has changed something.
    mutating func noteCommit() {
        isAtLastCommit = written != stored
        if isAtLastCommit && written != Self.next(after: stored) { isRandom = true }
        stored = written
    }

    /// The transaction was rolled back, or has changed nothing.
    mutating func noteRollback() { written = stored }
}

/// The numbers of the keys that rows are sealed with, as far as a look at the first rows shows.
///
/// No index has them, so looking at every row would take as long as reading the whole database. The first tokens are a random sample, because a keyed hash chooses their slots; the same
/// holds for sessions. So a key that has sealed every token is always found, and one that has sealed a fifth of them is
/// missed by a look at 32 rows in one case of a thousand. `token-cache verify` looks at all rows.
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
