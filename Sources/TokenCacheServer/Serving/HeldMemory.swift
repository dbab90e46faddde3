internal import Synchronization

/// What the large buffers take in all that wait for slow clients, on any thread.
final class HeldMemory: Sendable {
    private let limit: Atomic<Int>
    private let held = Atomic<Int>(0)

    /// - Parameter limit: In bytes.
    init(limit: Int) {
        self.limit = Atomic(limit)
    }

    /// Changes the limit, for buffers that are counted in from now on.
    func setLimit(_ bytes: Int) {
        limit.store(bytes, ordering: .relaxed)
    }

    /// Counts a buffer in; false when there is no room for it, and then it is not counted.
    func hold(_ bytes: Int) -> Bool {
        if held.add(bytes, ordering: .relaxed).newValue <= limit.load(ordering: .relaxed) { return true }
        release(bytes)
        return false
    }

    func release(_ bytes: Int) {
        held.subtract(bytes, ordering: .relaxed)
    }
}
