import Cryptography
import Glibc
import Synchronization
package import TokenStore

extension SQLiteAdministrator {
    package nonisolated var fileFault: KeyRingError? { store.state.sealing.fault(of: store.options.keyRing) }

    package func keys() throws(StoreError) -> [SealingKey] {
        let ring = store.state.sealing.ring
        return ring.keys.map { SealingKey($0, sealing: ring.active.number) }
    }

    package nonisolated func missingKeys() -> [Int]? { walker.missingKeys }

    package func addKey() throws(StoreError) -> SealingKey {
        let ring = try ringOfFile()
        // Otherwise a new key could get the number of the missing one, and no ring could have both.
        if let missing = [walker.missingKeys.last, walker.state.newestKey].compactMap(\.self).max(),
            missing > ring.newest.number
        {
            throw .refused(
                """
                the key ring \(store.options.keyRing.path) lacks key \(missing), with which tokens are sealed; put the key ring of \
                that time back first
                """)
        }
        let longer = try ring.addingKey(createdAt: Int64(time(nil)))
        try store.state.sealing.save(longer, to: store.options.keyRing)
        walker.note(newestKey: longer.newest.number)
        return SealingKey(longer.newest, sealing: longer.newest.number)
    }

    package func useKey(numbered number: Int) throws(StoreError) -> SealingKey {
        let newest = try ringOfFile().newest
        guard number == newest.number else {
            throw .refused(
                "the newest key seals, which is key \(newest.number); token-cache keyring rotate replaces it"
            )
        }
        return SealingKey(newest, sealing: newest.number)
    }

    package func retireKey(numbered number: Int) async throws(StoreError) {
        try refuseToRetire(number, of: try ringOfFile())
        // From here on, rows that this key has sealed are refused; those accepted before are committed when the empty
        // job has run.
        let sealing = store.state.sealing
        guard sealing.retiring.compareExchange(expected: 0, desired: number, ordering: .acquiringAndReleasing).exchanged
        else { throw .refused("another key is being retired; try again when that is done") }
        defer { sealing.retiring.store(0, ordering: .releasing) }
        try await store.writerThread.perform { (_) throws(SQLiteError) in }
        guard walker.isUnused(number) else {
            if let damage = walker.state.last?.damages.first {
                throw .refused(
                    """
                    key \(number) may still be needed, as the last round of the walk could not reach all rows: \(damage); replace the \
                    store by a backup, and run token-cache keyring rotate again
                    """)
            }
            throw .refused(
                """
                tokens or sessions may still be sealed with key \(number): no round of the walk over all rows has ended without it since \
                this start; run token-cache keyring rotate
                """)
        }
        // Another key may have been added meanwhile. From here on nothing else runs on this actor.
        let ring = try ringOfFile()
        try refuseToRetire(number, of: ring)
        if let key = ring.numberedKey(number) { try sealing.keepFile(store.options.keyRing, with: key) }
        try sealing.save(ring.removingKey(numbered: number), to: store.options.keyRing)
    }

    private func refuseToRetire(_ number: Int, of ring: KeyRing) throws(StoreError) {
        guard ring.key(numbered: number) != nil else {
            throw .refused("the key ring has no key \(number); token-cache keyring list shows those it has")
        }
        guard number != ring.newest.number else {
            throw .refused("key \(number) is the newest, which seals; token-cache keyring rotate replaces it")
        }
    }

    /// Reads the ring in the file, and uses it from now on; its newest key seals.
    private func ringOfFile() throws(StoreError) -> KeyRing {
        let found = try store.state.sealing.ring(in: store.options.keyRing)
        let ring = found.activating(found.newest.number)
        store.state.sealing.replace(ring)
        return ring
    }
}
