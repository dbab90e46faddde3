#if PostgreSQL
internal import System

/// A place of a handle for a connection: the one that is there, what waits to be sent on it, and the search for another one.
///
/// Belongs to its handle's thread.
final class ConnectionSlot {
    /// Nil while there is no connection.
    var pipeline: Pipeline?
    /// Operations that wait to be sent.
    var queue: [Operation] = []
    /// Whether a connection was ordered that has not been delivered.
    var isOrdered = false
    /// Not before this is another server looked for, as the last search has found the same one.
    var searchAgainAt = MonotonicTime(nanoseconds: 0)

    var isIdle: Bool { queue.isEmpty && held.isEmpty && pipeline?.groups.isEmpty != false }

    var held: [Pipeline.Held] { pipeline?.held ?? [] }
}
#endif
