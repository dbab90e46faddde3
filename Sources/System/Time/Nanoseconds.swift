/// A length of time that is never negative, in nanoseconds.
package struct Nanoseconds: Hashable, Sendable {
    package let count: UInt64

    package init(count: UInt64) {
        self.count = count
    }

    /// Durations below zero become zero.
    package init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        count = seconds < 0 ? 0 : UInt64(seconds) * 1_000_000_000 + UInt64(max(0, attoseconds)) / 1_000_000_000
    }
}
