package import Synchronization

/// The key ring that a store's rows are sealed under, which can change while the store is open.
///
/// Any thread.
package final class Sealing: Sendable {
    private let current: Mutex<KeyRing>
    /// Incremented after each change of the ring.
    let version = Atomic<UInt64>(1)
    /// The number of the key that is being retired; 0 for none.
    package let retiring = Atomic<Int>(0)
    /// Keys whose rows a search may have missed; see `takeFormerKeys`.
    ///
    /// They have sealed until another one began to, or are those of rows that were written only after that.
    private let formerKeys = Mutex<Set<Int>>([])
    private let reason = Mutex<String?>(nil)
    /// Whether `reason` is set; cheap enough to check for each row.
    private let isRefusing = Atomic<Bool>(false)

    package init(_ ring: KeyRing) {
        current = Mutex(ring)
    }

    package var ring: KeyRing { current.withLock(\.self) }

    package func replace(_ new: KeyRing) {
        let former = current.withLock { ring in
            defer { ring = new }
            return ring.active.number
        }
        // Noted only after the exchange: until then rows were sealed with it, and a search that begins would forget the note.
        if former != new.active.number { _ = formerKeys.withLock { $0.insert(former) } }
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
    package var acceptance: Acceptance {
        Acceptance(sealing: self, ring: ring, retiring: retiring.load(ordering: .acquiring))
    }

    /// Whether the key has stopped sealing since `takeFormerKeys` was called, or a row of it was written after it had.
    ///
    /// A search for rows of the key may have passed the place of such a row before the row was written.
    package func hasFormerKey(_ number: Int) -> Bool { formerKeys.withLock { $0.contains(number) } }

    /// Forgets these keys, as a new search begins, and returns them.
    package func takeFormerKeys() -> Set<Int> {
        formerKeys.withLock { keys in
            defer { keys = [] }
            return keys
        }
    }

    /// Decides whether rows that were sealed earlier may still be written: their key must be in the ring, and not being
    /// retired.
    package struct Acceptance {
        fileprivate let sealing: Sealing
        fileprivate let ring: KeyRing
        fileprivate let retiring: Int

        /// Whether a row may be written.
        package func accepts(keyNumber: Int) -> Bool {
            if keyNumber == retiring { return false }
            if keyNumber == ring.active.number { return true }
            guard ring.numberedKey(keyNumber) != nil else { return false }
            _ = sealing.formerKeys.withLock { $0.insert(keyNumber) }
            return true
        }
    }
}
