internal import Synchronization

/// The open connections of all loops, and how many there may be.
final class ConnectionCount: Sendable {
    private let count = Atomic<Int>(0)
    private let mostOpen: Atomic<Int>

    init(limit: Int) {
        mostOpen = Atomic(limit)
    }

    /// The most connections that are served; further ones are refused.
    var limit: Int { mostOpen.load(ordering: .relaxed) }

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
