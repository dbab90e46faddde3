internal import Cryptography
package import Synchronization

/// How a store's rows are written: sealed under a key ring, which can change while the store is open, or in the clear.
///
/// Any thread.
package final class Sealing: Sendable {
    private let current: Mutex<StoreKeys>
    /// Incremented after each change of the keys.
    package let version = Atomic<UInt64>(1)
    /// The number of the key that is being retired, or was without the ring having another one; 0 for none.
    package let retiring = Atomic<Int>(0)

    package init(_ keys: StoreKeys) {
        current = Mutex(keys)
    }

    package var keys: StoreKeys { current.withLock(\.self) }

    /// Nil for rows in the clear.
    package var ring: KeyRing? { keys.ring }

    package func replace(_ new: StoreKeys) {
        current.withLock { $0 = new }
        version.add(1, ordering: .releasing)
    }

    /// The rows that may be written at present.
    package var acceptance: Acceptance { Acceptance(keys: keys, retiring: retiring.load(ordering: .acquiring)) }

    /// Decides whether rows that were sealed earlier may still be written: their keys must be this store's, and not
    /// being retired.
    package struct Acceptance {
        fileprivate let keys: StoreKeys
        fileprivate let retiring: Int

        /// For a row that is only looked for or removed.
        package func accepts(index: ObjectIdentifier) -> Bool {
            index == keys.index.identity
        }

        package func accepts(index: ObjectIdentifier, keyNumber: Int) -> Bool {
            guard accepts(index: index) else { return false }
            guard let ring = keys.ring else { return true }
            return keyNumber != retiring && ring.key(numbered: keyNumber) != nil
        }
    }
}
