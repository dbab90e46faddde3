internal import Synchronization

/// The bytes that `limits.buffers` allows to wait: for clients that are slow to send or to read, and for the store.
///
/// Any thread.
package final class BufferBudget: Sendable {
    private let limit: Atomic<Int>
    private let taken = Atomic<Int>(0)

    /// - Parameter limit: In bytes.
    init(limit: Int) {
        self.limit = Atomic(limit)
    }

    /// Changes the limit, for bytes that are taken from now on.
    func setLimit(_ bytes: Int) {
        limit.store(bytes, ordering: .relaxed)
    }

    /// Bytes that wait.
    package var takenBytes: Int { taken.load(ordering: .relaxed) }

    /// More than half of it is taken: whoever holds memory that it can do without should give that up.
    var isScarce: Bool { takenBytes > limit.load(ordering: .relaxed) / 2 }

    /// Takes some bytes; false when there is no room for them, and then none is taken.
    func take(_ bytes: Int) -> Bool {
        if taken.add(bytes, ordering: .relaxed).newValue <= limit.load(ordering: .relaxed) { return true }
        giveBack(bytes)
        return false
    }

    func giveBack(_ bytes: Int) {
        taken.subtract(bytes, ordering: .relaxed)
    }
}
