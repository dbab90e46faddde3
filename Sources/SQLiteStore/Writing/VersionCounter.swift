internal import Glibc
internal import TokenStore

/// Gives each write its version: the microseconds since 1970, or one more than the version before.
///
/// The store keeps a limit that no version has exceeded, an hour ahead, so that hardly any commit has to store it; at the
/// start, versions begin beyond it. So no version is given twice, whatever happens to the process or the clock.
///
/// Used on its connection's thread.
struct VersionCounter {
    /// Microseconds by which the stored limit is ahead.
    static let step: Int64 = 3_600_000_000

    private var last: Int64
    /// The limit in the database, and the one that the open transaction writes.
    private var (stored, written): (Int64, Int64)
    /// The time in microseconds since 1970 of the open transaction; nil if no version was given in it.
    private var now: Int64?
    private let update: SQLiteStatement
    private let lower: SQLiteStatement

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        update = try SQLiteStatement("UPDATE store SET version_limit = max(version_limit, ?1)", on: connection)
        // Not what another statement has stored meanwhile.
        lower = try SQLiteStatement(
            "UPDATE store SET version_limit = ?1 WHERE version_limit = ?2", on: connection)
        let limit = try Schema.versionLimit(of: connection)
        (last, stored, written) = (limit, limit, limit)
    }

    /// A version that no row has yet.
    mutating func next() -> TokenVersion {
        let now = self.now ?? Self.microseconds
        self.now = now
        last = max(last + 1, now)
        return TokenVersion(rawValue: last)
    }

    /// Stores a larger limit, in the open transaction, if a version has exceeded it.
    ///
    /// Usually this only compares two numbers.
    mutating func reserve() throws(SQLiteError) {
        guard last > written else { return }
        let limit = last + Self.step
        try update.bind(limit, at: 1)
        try update.run()
        written = limit
    }

    /// Whether the stored limit is larger than the last version.
    var isAhead: Bool { stored > last }

    /// Stores the last version as the limit, in the open transaction, so that the next start goes on from there.
    mutating func storeExactly() throws(SQLiteError) {
        guard isAhead else { return }
        try lower.bind(last, at: 1)
        try lower.bind(stored, at: 2)
        try lower.run()
        written = last
    }

    /// The transaction was committed.
    mutating func noteCommit() { (stored, now) = (written, nil) }

    /// The transaction was rolled back.
    mutating func noteRollback() { (written, now) = (stored, nil) }

    private static var microseconds: Int64 {
        var time = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1_000
    }
}
