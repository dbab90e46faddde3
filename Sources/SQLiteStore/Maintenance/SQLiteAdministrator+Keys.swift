internal import Cryptography
internal import Glibc
internal import Synchronization
package import TokenStore

extension SQLiteAdministrator {
    package func keys() throws(StoreError) -> [SealingKey] {
        let ring = try ring()
        return try ring.keys.map { (key) throws(StoreError) in try SealingKey(key, sealing: ring.active.number) }
    }

    package func missingKeys() throws(StoreError) -> [Int]? {
        let ring = try ring()
        // The keys are listed even if the database can no longer be opened, or has damaged rows.
        guard let connection = try? reader().connection else { return nil }
        return try? KeyNumbers.missing(in: ring, connection, rows: KeyNumbers.rowsForOperator)
    }

    package func addKey() throws(StoreError) -> SealingKey {
        try reloadRing()
        let ring = try ring()
        guard ring.newest.number < KeyRing.numbers.upperBound else {
            throw .refused("the key ring is at its last number, \(ring.newest.number)")
        }
        let longer: KeyRing
        do throws(SealingError) {
            longer = try ring.addingKey(createdAt: Int64(time(nil)))
        } catch {
            throw .sealing(error)
        }
        try replaceRing(longer)
        return try SealingKey(longer.newest, sealing: longer.newest.number)
    }

    package func useKey(numbered number: Int) throws(StoreError) -> SealingKey {
        try reloadRing()
        let newest = try ring().newest
        guard number == newest.number else {
            throw .refused(
                "the newest key seals, which is key \(newest.number); token-cache keyring rotate replaces it"
            )
        }
        return try SealingKey(newest, sealing: newest.number)
    }

    package func retireKey(numbered number: Int) async throws(StoreError) {
        try reloadRing()
        try refuseToRetire(number, of: try ring())
        // From here on no row that it has sealed is accepted; those under way are committed when the empty job has run.
        let sealing = store.state.sealing
        guard sealing.retiring.compareExchange(expected: 0, desired: number, ordering: .acquiringAndReleasing).exchanged
        else { throw .refused("another key is being retired; try again when that is done") }
        defer { sealing.retiring.store(0, ordering: .releasing) }
        try await store.writerThread.perform { (_) throws(SQLiteError) in }
        let isUsed = try await readingForLong { (connection) throws(SQLiteError) in
            try connection.integer(
                """
                SELECT EXISTS (SELECT 1 FROM token WHERE key_number = \(number))
                OR EXISTS (SELECT 1 FROM session WHERE key_number = \(number))
                """
            ) == 1
        }
        guard !isUsed else {
            throw .refused("tokens or sessions are still sealed with key \(number); run token-cache keyring rotate")
        }
        // Another key may have been added meanwhile. From here on nothing else runs on this actor.
        try reloadRing()
        let ring = try ring()
        try refuseToRetire(number, of: ring)
        try replaceRing(ring.removingKey(numbered: number), without: number)
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

    /// Takes over what was changed in the file.
    private func reloadRing() throws(StoreError) {
        do throws(KeyRingError) {
            let file = store.options.keyRing
            guard let found = try file.load() else { throw .missing(path: file.path) }
            let current = store.state.sealing.ring
            guard let current, (try? found.identity()) == (try? current.identity()) else {
                throw .ofAnotherStore(path: file.path)
            }
            // The file may be an old copy; writing the ring would lose the missing key.
            for key in current.keys where found.key(numbered: key.number)?.hasBytes(of: key.key) != true {
                throw .lacksKey(number: key.number, path: file.path)
            }
            // Keeps the index key's object, which rows under way refer to.
            store.state.sealing.replace(.sealed(KeyRing(index: current.index, keys: found.keys)))
        } catch {
            throw .keyRing(error)
        }
    }

    private func replaceRing(_ new: KeyRing, without retired: Int? = nil) throws(StoreError) {
        do throws(KeyRingError) {
            // Must be on disk before a key seals.
            try store.options.keyRing.save(new, without: retired)
        } catch {
            if case .notDurable = error { store.state.sealing.replace(.sealed(new)) }
            throw .keyRing(error)
        }
        store.state.sealing.replace(.sealed(new))
    }

    // MARK: - Rekeying

    /// Rows of one transaction.
    private static let rekeyingStep = 200

    package func rekey(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> Rekeying {
        _ = try ring()
        let total = try await statistics().tokens
        progress(StoreProgress(done: 0, total: total))
        var result = Rekeying()
        // Begins before the first valid slot, so that no key stays in use by a misplaced row.
        var slot: Int64? = .min
        while let start = slot {
            let sealing = store.state.sealing
            let step = try await store.writerThread.perform { (writer) throws(SQLiteError) in
                var coder = RowCoder(sealing)
                return try writer.rekey(after: start, count: Self.rekeyingStep, &coder)
            }
            result.tokens += step.seen
            result.rekeyed += step.rekeyed
            result.unreadable += step.unreadable
            progress(StoreProgress(done: min(result.tokens, total), total: total))
            slot = step.next
            try stopIfCancelled()
        }
        result.unreadable += try await rekeySessions()
        // The WAL still has values that older keys have sealed.
        _ = try await store.writerThread.perform { (writer) throws(SQLiteError) in try writer.checkpoint(waiting: 200) }
        return result
    }

    /// Seals every session with the newest key; returns how many could not be opened.
    private func rekeySessions() async throws(StoreError) -> Int {
        var unreadable = 0
        var key: [UInt8]? = []
        while let start = key {
            let sealing = store.state.sealing
            let step = try await store.writerThread.perform { (writer) throws(SQLiteError) in
                try writer.rekeySessions(after: start, count: Self.rekeyingStep, sealing)
            }
            unreadable += step.unreadable
            key = step.next
            try stopIfCancelled()
        }
        return unreadable
    }

    private func stopIfCancelled() throws(StoreError) {
        guard Task.isCancelled else { return }
        throw .refused("the rekeying was interrupted; token-cache keyring rotate goes on with the rest")
    }
}
