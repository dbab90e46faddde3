internal import Synchronization

/// How a store's rows are written: sealed under a key ring, which can change while the store is open, or in the clear.
///
/// Any thread.
final class Sealing: Sendable {
    private let current: Mutex<StoreKeys>
    /// Grows with each change of the keys, after it.
    let version = Atomic<UInt64>(1)
    /// The key that is being taken out of the ring; 0 for none.
    let retiring = Atomic<Int>(0)
    /// What the keys have sealed.
    let seals: SealCounts

    init(_ keys: StoreKeys, seals: SealCounts = SealCounts()) {
        current = Mutex(keys)
        self.seals = seals
    }

    /// How often the newest key has sealed; nil in the clear.
    var newestCount: SealCount? { ring.map { seals.count(of: $0.newest.number) } }

    var keys: StoreKeys { current.withLock(\.self) }

    /// Nil for rows in the clear.
    var ring: KeyRing? { keys.ring }

    func replace(_ new: StoreKeys) {
        current.withLock { $0 = new }
        version.add(1, ordering: .releasing)
    }

    /// Which rows may be written as of now.
    var acceptance: Acceptance { Acceptance(keys: keys, retiring: retiring.load(ordering: .acquiring)) }

    /// Tells whether rows that were made a while ago may still be written: with keys that are there to stay, of this store.
    struct Acceptance {
        fileprivate let keys: StoreKeys
        fileprivate let retiring: Int

        func accepts(_ row: Row) -> Bool {
            guard row.index == keys.index.identity else { return false }
            guard let ring = keys.ring else { return true }
            return row.keyNumber != retiring && ring.key(numbered: row.keyNumber) != nil
        }
    }
}
