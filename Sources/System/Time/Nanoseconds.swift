/// A length of time that is never negative.
///
/// Public for the reason that `MonotonicTime` is.
@frozen public struct Nanoseconds: Hashable, Sendable {
    /// How many nanoseconds.
    public let count: UInt64

    /// - Parameter count: How many nanoseconds.
    @inlinable
    public init(count: UInt64) {
        self.count = count
    }

    /// Durations below zero become zero.
    public init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        count = seconds < 0 ? 0 : UInt64(seconds) * 1_000_000_000 + UInt64(max(0, attoseconds)) / 1_000_000_000
    }
}
