#if PostgreSQL
internal import System

/// Shows that a server is still the primary: a commit that its standbys have to acknowledge.
///
/// A primary that was paused or cut off, or that nobody has told, and in whose place a standby was promoted, still answers reads
/// from what it has. Its commits do not return, as its standbys follow another server: one that returns proves that no standby had
/// been promoted when it began.
///
/// A proof is a lease. Reads that are answered within `validity` of its beginning count, and no process uses a new primary, for
/// reads or for writes, before it has known it for as long. So whatever the old primary gives until then is what the new one has
/// too. Clocks need not agree, only run at the same speed.
enum Fence {
    static let name = "token_cache_fence"
    /// A message in the write-ahead log that nobody reads: a transaction that has written nothing would not wait for standbys.
    static let sql = "SELECT pg_logical_emit_message(true, 'token-cache', '')"
    /// How long a proof counts, and how much longer each failover takes.
    static let validity = Nanoseconds(.milliseconds(750))
    /// When the next proof is asked for, so that reads need not wait for one.
    static let renewal = Nanoseconds(.milliseconds(300))
    /// How long its answer is waited for before it is asked for again.
    static let pause = Nanoseconds(.milliseconds(150))
}
#endif
