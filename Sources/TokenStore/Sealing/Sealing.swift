internal import Synchronization

/// How a store's rows are written: sealed under a key ring, which can change while the store is open, or in the clear.
///
/// Any thread.
final class Sealing: Sendable {
    private let ring: Mutex<KeyRing?>
    /// Grows with each change of the ring, after it.
    let version = Atomic<UInt64>(1)
    /// The key that is being taken out of the ring; 0 for none.
    let retiring = Atomic<Int>(0)

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

    /// Which rows may be written as of now.
    var acceptance: Acceptance { Acceptance(ring: current, retiring: retiring.load(ordering: .acquiring)) }

    /// Tells whether rows that were sealed a while ago may still be written: with a key that is there to stay, of this ring.
    struct Acceptance {
        fileprivate let ring: KeyRing?
        fileprivate let retiring: Int

        func accepts(_ row: Row) -> Bool {
            guard row.ring == ring?.index.identity else { return false }
            guard let ring else { return true }
            return row.keyNumber != retiring && ring.key(numbered: row.keyNumber) != nil
        }
    }
}
