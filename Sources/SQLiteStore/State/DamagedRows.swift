import Synchronization

/// Tells damaged pages of a table, which concern the tokens on them, from a table that is damaged as a whole.
///
/// Any thread.
final class DamagedRows: Sendable {
    /// So many different rows in a row are hardly ever on a few pages: any other row that is met in between is sound.
    private static let few = 32

    /// Hashes of the keys of rows on damaged pages that were met since the last sound one.
    private let met = Mutex<Set<Int>>([])
    /// Whether `met` has any; separate, because every read asks for it.
    private let hasMet = Atomic<Bool>(false)

    /// Notes that a row could be neither read nor changed, because a page is damaged.
    ///
    /// - Returns: Whether the table is damaged as a whole, as far as that is known.
    func note(_ key: some Hashable) -> Bool {
        hasMet.store(true, ordering: .relaxed)
        return met.withLock { met in
            if met.count < Self.few { met.insert(key.hashValue) }
            return met.count == Self.few
        }
    }

    /// Notes that a row could be read or changed, or was looked for and is not there.
    func noteSound() {
        guard hasMet.load(ordering: .relaxed) else { return }
        hasMet.store(false, ordering: .relaxed)
        met.withLock { $0 = [] }
    }
}
