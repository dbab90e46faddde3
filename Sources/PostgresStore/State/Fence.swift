#if PostgreSQL
internal import System

/// Shows that a server is still the primary: a commit that its standbys have to acknowledge.
///
/// A primary that was paused or cut off, and in whose place a standby was promoted, would still answer reads from what it has.
/// Its commits do not return, as its standbys follow another server. So what a server has read before such a commit begins
/// is current when the commit returns.
enum Fence {
    static let name = "token_cache_fence"
    /// A message in the write-ahead log that nobody reads: a transaction that has written nothing would not wait for standbys.
    static let sql = "SELECT pg_logical_emit_message(true, 'token-cache', '')"
    /// Reads that were answered later than this after they were sent are held until there is a proof.
    static let lateness = Nanoseconds(.milliseconds(250))
    /// How long a proof counts for reads that are answered in time.
    static let validity = Nanoseconds(.seconds(5))
    /// When the next proof is asked for, so that reads need not wait for one.
    static let renewal = Nanoseconds(.milliseconds(2_500))
}
#endif
