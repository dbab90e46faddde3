/// The keys of a store's rows.
package enum StoreKeys: Sendable {
    case sealed(KeyRing)
    /// In the clear there is nothing to hide: this one only keeps whoever chooses ids from filling the slots of one row.
    case clear(index: SecretKey)

    /// Nil in the clear.
    package var ring: KeyRing? {
        switch self {
        case .sealed(let ring): ring
        case .clear: nil
        }
    }

    /// Says where a row lies.
    package var index: SecretKey {
        switch self {
        case .sealed(let ring): ring.index
        case .clear(let index): index
        }
    }
}
