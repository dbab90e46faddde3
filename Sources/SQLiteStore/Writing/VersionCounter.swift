import System
import TokenStore

/// Gives each write its version: the microseconds since 1970, or one more than the version before.
///
/// The store keeps a limit that no version has exceeded, a minute ahead, so that hardly any commit has to store it; at the
/// start, versions begin beyond it. So no version is given twice, whatever happens to the process or the clock.
///
/// Used on its connection's thread.
struct VersionCounter {
    /// Microseconds by which the stored limit is ahead.
    private static let step: Int64 = 60_000_000

    private var last: Int64
    /// The limit that was written last; 0 after a rollback, which may have taken it back.
    private var written: Int64
    private let update: SQLiteStatement

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        update = try SQLiteStatement("UPDATE store SET version_limit = max(version_limit, ?1)", on: connection)
        last = try Schema.versionLimit(of: connection)
        written = last
    }

    /// A version that no row has yet.
    mutating func next() -> TokenVersion {
        last = max(last + 1, UTCTime.microseconds())
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

    /// The transaction was rolled back.
    mutating func noteRollback() { written = 0 }
}
