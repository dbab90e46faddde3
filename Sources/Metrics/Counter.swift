import Synchronization

/// A counter that one thread writes and any thread reads.
///
/// Adding is a relaxed load and a relaxed store, which are plain moves on x86-64 and ARM64. An atomic addition, which several
/// writers would need, costs about 5 ns, and more under contention. Each loop therefore has its own counters, and readers add
/// them up.
package struct Counter: ~Copyable, Sendable {
    private let count = Atomic<UInt64>(0)

    package init() {}

    /// Adds to the counter; call it only on the thread that owns the counter.
    @inline(__always)
    package func add(_ number: UInt64 = 1) {
        set(value &+ number)
    }

    /// Sets the counter; call it only on the thread that owns the counter.
    @inline(__always)
    package func set(_ number: UInt64) {
        count.store(number, ordering: .relaxed)
    }

    /// A recent value of the counter.
    @inline(__always)
    package var value: UInt64 { count.load(ordering: .relaxed) }
}

/// A counter that can be an array's element, which a noncopyable value cannot be.
final class BoxedCounter: Sendable {
    let counter = Counter()
}

/// A counter for each case.
package final class Counters<Key: CaseIterable & Equatable & Sendable>: Sendable {
    private let keys = Array(Key.allCases)
    private let counts: [BoxedCounter]

    package init() {
        counts = Key.allCases.map { _ in BoxedCounter() }
    }

    /// Adds one; called on the thread that owns the counters.
    package func add(_ key: Key) {
        for (index, candidate) in keys.enumerated() where candidate == key { counts[index].counter.add() }
    }

    package var total: UInt64 { counts.reduce(0) { $0 + $1.counter.value } }

    package func value(_ key: Key) -> UInt64 {
        keys.firstIndex(of: key).map { counts[$0].counter.value } ?? 0
    }
}
