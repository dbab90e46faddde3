import Cryptography
import Glibc
import Synchronization
package import TokenStore

extension SQLiteAdministrator {
    package nonisolated var fileFault: KeyRingError? { store.state.sealing.fault(of: store.options.keyRing) }

    package func keys() throws(StoreError) -> [SealingKey] {
        let ring = try ring()
        return ring.keys.map { SealingKey($0, sealing: ring.active.number) }
    }

    package func missingKeys() throws(StoreError) -> [Int]? {
        let ring = try ring()
        // The keys are listed even if the database can no longer be opened, or has damaged rows.
        return try? reading { (connection) throws(SQLiteError) in
            try KeyNumbers.missing(in: ring, connection, rows: KeyNumbers.rowsForOperator)
        }
    }

    package func addKey() throws(StoreError) -> SealingKey {
        let ring = try ringOfFile()
        // Otherwise a new key could get the number of the missing one, and no ring could have both.
        if let missing = try missingKeys()?.last, missing > ring.newest.number {
            throw .refused(
                """
                the key ring \(store.options.keyRing.path) lacks key \(missing), with which tokens are sealed; put the key ring of \
                that time back first
                """)
        }
        let longer = try ring.addingKey(createdAt: Int64(time(nil)))
        try store.state.sealing.save(longer, to: store.options.keyRing)
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
        let isUsed = try await readingForLong { (connection) throws(SQLiteError) in
            let rows = try OpenedRows(connection, sealing, sealedWith: number)
            while let row = try rows.next() {
                if row.isOpen { return true }
            }
            return false
        }
        guard !isUsed else {
            throw .refused("tokens or sessions are still sealed with key \(number); run token-cache keyring rotate")
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

    private func ring() throws(StoreError) -> KeyRing {
        guard let ring = store.state.sealing.ring else {
            throw .refused("the store is not sealed, and so has no keys; token-cache copy makes a sealed one of it")
        }
        return ring
    }

    /// Reads the ring in the file, and uses it from now on; its newest key seals.
    private func ringOfFile() throws(StoreError) -> KeyRing {
        _ = try ring()
        let found = try store.state.sealing.ring(in: store.options.keyRing)
        let ring = found.activating(found.newest.number)
        store.state.sealing.replace(.sealed(ring))
        return ring
    }

    // MARK: - Rekeying

    /// Rows of one transaction.
    private static let rekeyingStep = 200

    package func rekey(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> Rekeying {
        _ = try ring()
        let total = try await statistics().tokens
        progress(StoreProgress(done: 0, total: total))
        var result = Rekeying()
        // Begins before the first valid slot, so that a misplaced row is counted as well.
        try await result.run(from: Int64.min, of: total, telling: progress) { (start) async throws(StoreError) in
            try await store.writerThread.perform { (writer) throws(SQLiteError) in
                try writer.rekey(after: start, count: Self.rekeyingStep)
            }
        }
        try await result.run(from: [UInt8](), of: total) { (start) async throws(StoreError) in
            try await store.writerThread.perform { (writer) throws(SQLiteError) in
                try writer.rekeySessions(after: start, count: Self.rekeyingStep)
            }
        }
        // Empties the WAL, which still has values that older keys have sealed.
        _ = try await store.writerThread.perform { (writer) throws(SQLiteError) in try writer.checkpoint(waiting: 200) }
        return result
    }
}
