/// A counter for each case.
package final class Counters<Key: CaseIterable & Equatable & Sendable>: Sendable {
    private let keys = Array(Key.allCases)
    private let counts: [Single]

    /// A class, because a counter cannot be an array's element.
    private final class Single: Sendable {
        let count = Counter()
    }

    package init() {
        counts = Key.allCases.map { _ in Single() }
    }

    /// Adds one; called on the thread that owns the counters.
    package func add(_ key: Key) {
        for (index, candidate) in keys.enumerated() where candidate == key { counts[index].count.add() }
    }

    package func value(_ key: Key) -> UInt64 {
        keys.firstIndex(of: key).map { counts[$0].count.value } ?? 0
    }
}
