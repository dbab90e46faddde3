package import Cryptography
package import Synchronization

/// How a store's rows are written: sealed under a key ring, which can change while the store is open, or in the clear.
///
/// Any thread.
package final class Sealing: Sendable {
    private let current: Mutex<StoreKeys>
    /// Incremented after each change of the keys.
    package let version = Atomic<UInt64>(1)
    /// The number of the key that is being retired; 0 for none.
    package let retiring = Atomic<Int>(0)
    private let reason = Mutex<String?>(nil)
    /// Whether `reason` is set; cheap enough to check for each row.
    private let isRefusing = Atomic<Bool>(false)

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

    /// Stops sealing; rows can still be opened.
    ///
    /// - Parameter reason: For operators; nil to let rows be sealed again.
    package func refuse(_ reason: String?) {
        self.reason.withLock { $0 = reason }
        isRefusing.store(reason != nil, ordering: .releasing)
    }

    /// Why nothing may be sealed at present; nil if rows may.
    package var refusal: SealingError? {
        isRefusing.load(ordering: .acquiring) ? reason.withLock { $0.map(SealingError.refused) } : nil
    }

    /// The rows that may be written at present.
    package var acceptance: Acceptance { Acceptance(ring: ring, retiring: retiring.load(ordering: .acquiring)) }

    /// Decides whether rows that were sealed earlier may still be written: their key must be in the ring, and not being
    /// retired.
    package struct Acceptance {
        fileprivate let ring: KeyRing?
        fileprivate let retiring: Int

        package func accepts(keyNumber: Int) -> Bool {
            guard let ring else { return true }
            return keyNumber != retiring && ring.key(numbered: keyNumber) != nil
        }
    }
}

/// The keys of a store's rows.
package enum StoreKeys: Sendable {
    case sealed(KeyRing)
    /// The index key of a store in the clear hides nothing; it only keeps clients from choosing ids that fill the slots
    /// of one row.
    case clear(index: SecretKey)

    /// Nil in the clear.
    package var ring: KeyRing? {
        switch self {
        case .sealed(let ring): ring
        case .clear: nil
        }
    }

    /// The key that determines a row's slots.
    package var index: SecretKey {
        switch self {
        case .sealed(let ring): ring.index
        case .clear(let index): index
        }
    }
}
