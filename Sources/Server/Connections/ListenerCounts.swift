internal import Metrics

/// Counts the requests of each listener.
///
/// Written on one thread, read on any.
package final class ListenerCounts: Sendable {
    /// How many listeners have a counter of their own; those that follow share one.
    package static let limit = 64
    private let counts = InlineArray<65, Counter> { _ in Counter() }

    /// Counts a request; called on the one thread that writes.
    @inline(__always)
    func note(_ listener: UInt16) {
        counts[min(Int(listener), Self.limit)].add()
    }

    /// - Parameter listener: Its number, or `limit` for all those that share a counter.
    package func value(of listener: Int) -> UInt64 { counts[listener].value }
}
