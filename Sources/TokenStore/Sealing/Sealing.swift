internal import Synchronization

/// How a store's rows are written: sealed under a key ring, which can change while the store is open, or in the clear.
///
/// Any thread.
final class Sealing: Sendable {
    private let ring: Mutex<KeyRing?>
    /// Grows with each change of the ring, after it.
    let version = Atomic<UInt64>(1)

    /// - Parameter ring: Nil for rows in the clear.
    init(_ ring: KeyRing?) {
        self.ring = Mutex(ring)
    }

    /// Nil for rows in the clear.
    var current: KeyRing? { ring.withLock(\.self) }

    func replace(_ new: KeyRing) {
        ring.withLock { $0 = new }
        version.add(1, ordering: .releasing)
    }
}
