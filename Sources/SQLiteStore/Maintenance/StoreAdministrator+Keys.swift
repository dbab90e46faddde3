internal import Glibc
internal import Synchronization
package import TokenStore

extension StoreAdministrator {
    /// A key without the key.
    package struct Key: Codable, Hashable, Sendable {
        package var number: Int
        /// Seconds since 1970.
        package var createdAt: Int64
        /// It seals what is written.
        package var isNewest: Bool
        /// How often it has sealed, of `sealLimit` times that it may; after a crash that is up to 65,536 too many.
        package var seals: Int64
        /// False for a key of an earlier version: rows that it has sealed may not be bound to their times, and it is to be
        /// replaced.
        package var bindsTimes: Bool

        /// How often a key may seal.
        package static let sealLimit = SealCounts.limit
        /// From here on it is time for a new key.
        package static let sealConcern = SealCounts.concern
    }

    private func key(_ key: KeyRing.NumberedKey, of ring: KeyRing) -> Key {
        Key(
            number: key.number, createdAt: key.createdAt, isNewest: key.number == ring.newest.number,
            seals: store.state.sealing.seals.count(of: key.number).value, bindsTimes: key.bindsTimes
        )
    }

    /// The numbered keys, the oldest first.
    package func keys() throws(StoreError) -> [Key] {
        let ring = try ring()
        return ring.keys.map { key($0, of: ring) }
    }

    /// Makes a new key, which seals from now on; what the older ones have sealed stays readable.
    package func addKey() throws(StoreError) -> Key {
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
        return key(longer.newest, of: longer)
    }

    /// Takes a key out of the ring, for good.
    ///
    /// The newest one is kept, and so is one that a row is still sealed with.
    package func retireKey(numbered number: Int) async throws(StoreError) {
        try reloadRing()
        try refuseToRetire(number, of: try ring())
        // From here on no row that it has sealed is written any more, and what was under way is when the job has run.
        let sealing = store.state.sealing
        guard sealing.retiring.compareExchange(expected: 0, desired: number, ordering: .acquiringAndReleasing).exchanged
        else { throw .refused("another key is being retired; try again when that is done") }
        defer { sealing.retiring.store(0, ordering: .releasing) }
        try await store.writer.perform { (_) throws(SQLiteError) in }
        let connection = try reader().connection
        let isUsed = try await readingForLong(connection) { () throws(SQLiteError) in
            try connection.integer("SELECT EXISTS (SELECT 1 FROM token WHERE key_number = \(number))") == 1
        }
        guard !isUsed else {
            throw .refused("tokens are still sealed with key \(number); seal them anew first with token-cache rekey")
        }
        // Meanwhile another key may have been added; from here to the end nothing else has its turn.
        try reloadRing()
        let ring = try ring()
        try refuseToRetire(number, of: ring)
        try replaceRing(ring.removingKey(numbered: number))
    }

    private func refuseToRetire(_ number: Int, of ring: KeyRing) throws(StoreError) {
        guard ring.key(numbered: number) != nil else {
            throw .refused("the key ring has no key \(number); token-cache keys list shows those it has")
        }
        guard number != ring.newest.number else {
            throw .refused("key \(number) is the newest, which seals; add another one first with token-cache keys add")
        }
    }

    private func ring() throws(StoreError) -> KeyRing {
        guard let ring = store.state.sealing.ring else {
            throw .refused("the store is not sealed, and so has no keys; token-cache seal seals it")
        }
        return ring
    }

    /// What somebody else has changed in the file meanwhile counts.
    private func reloadRing() throws(StoreError) {
        do throws(KeyRingError) {
            let file = store.options.keyRing
            guard let found = try file.load() else { throw .missing(path: file.path) }
            let current = store.state.sealing.ring
            guard let current, (try? found.identity()) == (try? current.identity()) else {
                throw .ofAnotherStore(path: file.path)
            }
            // An old copy of the file, say. What is written next would be all that is left of the ring.
            for key in current.keys where found.key(numbered: key.number)?.hasBytes(of: key.key) != true {
                throw .lacksKey(number: key.number, path: file.path)
            }
            // The index key stays the one that rows under way were sealed with.
            store.state.sealing.replace(.sealed(KeyRing(index: current.index, keys: found.keys)))
        } catch {
            throw .keyRing(error)
        }
    }

    private func replaceRing(_ new: KeyRing) throws(StoreError) {
        do throws(KeyRingError) {
            // On the disk before anything is sealed with it.
            try store.options.keyRing.save(new)
        } catch {
            if case .notDurable = error { store.state.sealing.replace(.sealed(new)) }
            throw .keyRing(error)
        }
        store.state.sealing.replace(.sealed(new))
    }

    // MARK: - Sealing anew

    /// What sealing anew has come to.
    package struct Rekeying: Codable, Sendable {
        package var tokens = 0
        /// Sealed with the newest key by this run; the others were already.
        package var resealed = 0
        /// Rows that could not be opened and stay as they are.
        package var unreadable = 0
    }

    /// Rows of one transaction.
    private static let rekeyingStep = 200

    /// Seals every row with the newest key, a few at a time, while the store is in use.
    ///
    /// It may be interrupted at any point: each row opens before and after, and the next run goes on with the rest.
    package func rekey(_ progress: (Progress) -> Void) async throws(StoreError) -> Rekeying {
        _ = try ring()
        let total = try await statistics().tokens
        progress(Progress(done: 0, total: total))
        var result = Rekeying()
        // Also where no row belongs, so that no key stays in use there.
        var slot: Int64? = .min
        while let start = slot {
            let sealing = store.state.sealing
            // Otherwise every row would be one that cannot be sealed.
            if let count = sealing.newestCount, count.isExhausted {
                throw .sealing(.exhausted(keyNumber: count.keyNumber))
            }
            let step = try await store.writer.perform { (committer) throws(SQLiteError) in
                var coder = RowCoder(sealing)
                return try committer.reseal(after: start, count: Self.rekeyingStep, &coder)
            }
            result.tokens += step.seen
            result.resealed += step.resealed
            result.unreadable += step.unreadable
            progress(Progress(done: min(result.tokens, total), total: total))
            slot = step.next
            if Task.isCancelled {
                throw .refused("sealing anew was interrupted; token-cache rekey goes on with the rest")
            }
        }
        // What the older keys have sealed is in the log still.
        _ = try await store.writer.perform { (committer) throws(SQLiteError) in try committer.checkpoint(waiting: 200) }
        return result
    }
}
