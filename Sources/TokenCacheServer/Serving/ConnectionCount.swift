internal import Synchronization

/// The open connections of all loops.
final class ConnectionCount: Sendable {
    private let count = Atomic<Int>(0)

    /// Counts one more and returns how many there are with it.
    func add() -> Int {
        count.add(1, ordering: .relaxed).newValue
    }

    func subtract() {
        count.subtract(1, ordering: .relaxed)
    }
}
