import Synchronization

/// Distinguishes a table with a few damaged pages, which affect only the rows on them, from one that is damaged as a whole.
///
/// Any thread.
final class DamagedRows: Sendable {
    /// When so many different rows fail one after the other, without a sound one in between, more than a few pages are damaged.
    private static let few = 32

    /// Hashes of the keys of the rows that have failed since the last sound one.
    private let met = Mutex<Set<Int>>([])
    /// Whether `met` has any, without a lock, because every read asks for it.
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
