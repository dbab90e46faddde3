package import Synchronization

/// How a store's rows are written: sealed under a key ring, which can change while the store is open, or in the clear.
///
/// Any thread.
package final class Sealing: Sendable {
    private let current: Mutex<StoreKeys>
    /// Grows with each change of the keys, after it.
    package let version = Atomic<UInt64>(1)
    /// The key that is being taken out of the ring; 0 for none.
    package let retiring = Atomic<Int>(0)
    /// What the keys have sealed.
    package let seals: SealCounts

    package init(_ keys: StoreKeys, seals: SealCounts = SealCounts()) {
        current = Mutex(keys)
        self.seals = seals
    }

    /// How often the newest key has sealed; nil in the clear.
    package var newestCount: SealCount? { ring.map { seals.count(of: $0.newest.number) } }

    package var keys: StoreKeys { current.withLock(\.self) }

    /// Nil for rows in the clear.
    package var ring: KeyRing? { keys.ring }

    package func replace(_ new: StoreKeys) {
        current.withLock { $0 = new }
        version.add(1, ordering: .releasing)
    }

    /// Which rows may be written as of now.
    package var acceptance: Acceptance { Acceptance(keys: keys, retiring: retiring.load(ordering: .acquiring)) }

    /// Tells whether rows that were made a while ago may still be written: with keys that are there to stay, of this store.
    package struct Acceptance {
        fileprivate let keys: StoreKeys
        fileprivate let retiring: Int

        package func accepts(index: ObjectIdentifier, keyNumber: Int) -> Bool {
            guard index == keys.index.identity else { return false }
            guard let ring = keys.ring else { return true }
            return keyNumber != retiring && ring.key(numbered: keyNumber) != nil
        }
    }
}
