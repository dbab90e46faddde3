internal import Synchronization

/// The open connections of all loops, and how many there may be.
final class ConnectionCount: Sendable {
    private let count = Atomic<Int>(0)
    private let mostOpen: Atomic<Int>

    init(limit: Int) {
        mostOpen = Atomic(limit)
    }

    /// Beyond it, one more is refused.
    var limit: Int { mostOpen.load(ordering: .relaxed) }

    /// Changes the limit; what is open stays.
    func setLimit(_ limit: Int) {
        mostOpen.store(limit, ordering: .relaxed)
    }

    /// Counts one more and returns how many there are with it.
    func add() -> Int {
        count.add(1, ordering: .relaxed).newValue
    }

    func subtract() {
        count.subtract(1, ordering: .relaxed)
    }
}
