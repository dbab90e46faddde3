internal import Synchronization

/// A number that one thread adds to and any thread reads.
///
/// A relaxed load and a relaxed store, which are plain moves on all machines that matter; the locked addition of several
/// writers would cost some 5 ns each and more where they meet. So each loop has counters of its own, and who asks adds them
/// up.
package struct Counter: ~Copyable, Sendable {
    private let count = Atomic<UInt64>(0)

    package init() {}

    /// Adds; on the thread that the counter belongs to.
    @inline(__always)
    package func add(_ number: UInt64 = 1) {
        set(value &+ number)
    }

    /// Replaces the number; on the thread that the counter belongs to.
    @inline(__always)
    package func set(_ number: UInt64) {
        count.store(number, ordering: .relaxed)
    }

    /// The number as of about now.
    @inline(__always)
    package var value: UInt64 { count.load(ordering: .relaxed) }
}
