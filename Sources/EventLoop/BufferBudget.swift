import Synchronization

/// Counts the bytes of handshakes, requests, answers and tokens that wait for a slow client or for the store, and keeps them within
/// `limits.buffers`.
///
/// Any thread.
package final class BufferBudget: Sendable {
    private let limit: Atomic<Int>
    private let loops: Int
    private let taken = Atomic<Int>(0)

    /// - Parameters:
    ///   - limit: In bytes.
    ///   - loops: How many loops share it.
    package init(limit: Int, loops: Int = 1) {
        self.limit = Atomic(limit)
        self.loops = loops
    }

    /// Changes the limit; bytes that are already counted stay so.
    package func setLimit(_ bytes: Int) {
        limit.store(bytes, ordering: .relaxed)
    }

    /// The bytes that are counted.
    package var takenBytes: Int { taken.load(ordering: .relaxed) }

    /// Whether more than half of the limit is taken: connections then free memory that they can do without.
    package var isScarce: Bool { takenBytes > limit.load(ordering: .relaxed) / 2 }

    /// What the handshakes of one loop may take; half of the limit is left to requests.
    var handshakeShare: Int { limit.load(ordering: .relaxed) / 2 / loops }

    /// Counts bytes, all or none.
    ///
    /// - Returns: False if there is no room for them.
    package func take(_ bytes: Int) -> Bool {
        if taken.add(bytes, ordering: .relaxed).newValue <= limit.load(ordering: .relaxed) { return true }
        giveBack(bytes)
        return false
    }

    /// Counts bytes, all or none; beyond three quarters of the limit, those requests and answers of a loop end that have waited
    /// longest for their clients.
    ///
    /// The last quarter is there for handshakes and short requests, also on loops where nothing waits.
    ///
    /// On the loop's thread.
    package func take(_ bytes: Int, displacingOn loop: EventLoop) -> Bool {
        // Abandoned, as what has arrived would take more memory.
        while takenBytes + bytes > limit.load(ordering: .relaxed) / 4 * 3,
            loop.displace(.unfinished, because: .abandoned) > 0
        {}
        return take(bytes)
    }

    package func giveBack(_ bytes: Int) {
        taken.subtract(bytes, ordering: .relaxed)
    }
}
