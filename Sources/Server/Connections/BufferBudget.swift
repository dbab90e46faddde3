internal import Synchronization

/// Counts the bytes of requests, answers and tokens that wait for a slow client or for the store, and keeps them within
/// `limits.buffers`.
///
/// Any thread.
package final class BufferBudget: Sendable {
    private let limit: Atomic<Int>
    private let taken = Atomic<Int>(0)

    /// - Parameter limit: In bytes.
    init(limit: Int) {
        self.limit = Atomic(limit)
    }

    /// Changes the limit; bytes that are already counted stay so.
    func setLimit(_ bytes: Int) {
        limit.store(bytes, ordering: .relaxed)
    }

    /// The bytes that are counted.
    package var takenBytes: Int { taken.load(ordering: .relaxed) }

    /// Whether more than half of the limit is taken: connections then free memory that they can do without.
    var isScarce: Bool { takenBytes > limit.load(ordering: .relaxed) / 2 }

    /// Counts bytes, all or none.
    ///
    /// - Returns: False if there is no room for them.
    func take(_ bytes: Int) -> Bool {
        if taken.add(bytes, ordering: .relaxed).newValue <= limit.load(ordering: .relaxed) { return true }
        giveBack(bytes)
        return false
    }

    func giveBack(_ bytes: Int) {
        taken.subtract(bytes, ordering: .relaxed)
    }
}
