package import Cryptography

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
