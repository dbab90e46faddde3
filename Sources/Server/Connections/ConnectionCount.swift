internal import Synchronization

/// The open connections of all loops, and how many there may be.
final class ConnectionCount: Sendable {
    private let count = Atomic<Int>(0)
    private let mostOpen: Atomic<Int>

    init(limit: Int) {
        mostOpen = Atomic(limit)
    }

    /// The most connections that are served; further ones are refused, unless idle ones can make room for them.
    var limit: Int { mostOpen.load(ordering: .relaxed) }

    /// Whether there are more.
    var isExceeded: Bool { count.load(ordering: .relaxed) > limit }

    /// Changes the limit; open connections stay.
    func setLimit(_ limit: Int) {
        mostOpen.store(limit, ordering: .relaxed)
    }

    /// Counts another connection and returns the new count.
    func add() -> Int {
        count.add(1, ordering: .relaxed).newValue
    }

    func subtract() {
        count.subtract(1, ordering: .relaxed)
    }
}
