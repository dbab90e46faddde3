internal import Cryptography
internal import System

/// Changes the key ring of an open store.
package protocol KeyRingAdministrator: Sendable {
    /// The numbered keys, the oldest first.
    func keys() async throws(StoreError) -> [SealingKey]

    /// The numbers of keys that rows are sealed with and the ring lacks, in ascending order, as far as a short look shows;
    /// nil for a store that does not look.
    func missingKeys() async throws(StoreError) -> [Int]?

    /// Makes a new key, which seals from now on, or waits for `useKey` in a store that servers share; what the older ones have sealed
    /// stays readable.
    func addKey() async throws(StoreError) -> SealingKey

    /// Has a key seal from now on, on all servers that share the store.
    func useKey(numbered number: Int) async throws(StoreError) -> SealingKey

    /// Takes a key out of the ring, for good.
    ///
    /// The newest key stays, and so do the one that seals and those that a row is still sealed with.
    func retireKey(numbered number: Int) async throws(StoreError)

    /// Seals every row with the key that seals, a few at a time, while the store is in use.
    ///
    /// It may be interrupted at any point: each row opens before and after, and the next run goes on with the rest.
    ///
    /// - Parameter progress: Counted in tokens.
    func rekey(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> Rekeying
}

/// What operators may see of a key.
package struct SealingKey: Codable, Hashable, Sendable {
    package var number: Int
    /// Seconds since 1970.
    package var createdAt: Int64
    /// Tells it from another key of its number.
    package var fingerprint: String
    /// Whether it seals what is written.
    package var seals: Bool

    /// - Parameters:
    ///   - key: In a ring.
    ///   - active: The number of the key that seals.
    package init(_ key: KeyRing.NumberedKey, sealing active: Int) throws(StoreError) {
        (number, createdAt, seals) = (key.number, key.createdAt, key.number == active)
        do throws(KeyRingError) {
            fingerprint = try key.fingerprint()
        } catch {
            throw .keyRing(error)
        }
    }
}

/// What a rekeying has done.
package struct Rekeying: Codable, Sendable {
    package var tokens = 0
    /// Rows that this run has sealed with the key that seals; the others were already.
    package var rekeyed = 0
    /// Rows that could not be opened and stay as they are.
    package var unreadable = 0

    package init() {}
}

/// The result of one step of a rekeying.
package struct RekeyingStep<Place: Sendable>: Sendable {
    /// The row after which the next step begins; nil when there is none.
    package var next: Place?
    /// Tokens that were looked at.
    package var seen = 0
    package var rekeyed = 0
    package var unreadable = 0

    package init(next: Place? = nil) {
        self.next = next
    }
}

extension Rekeying {
    /// Takes steps until no row is left; fails when the task is cancelled.
    ///
    /// - Parameters:
    ///   - start: Before the first row.
    ///   - total: How many tokens there are.
    ///   - progress: Called after each step; nil for rows that are no tokens.
    ///   - step: Seals some rows again, those after a place.
    package nonisolated(nonsending) mutating func run<Place: Sendable>(
        from start: Place, of total: Int, telling progress: ((StoreProgress) -> Void)? = nil,
        _ step: (Place) async throws(StoreError) -> RekeyingStep<Place>
    ) async throws(StoreError) {
        var place: Place? = start
        while let start = place {
            let done = try await step(start)
            tokens += done.seen
            rekeyed += done.rekeyed
            unreadable += done.unreadable
            progress?(StoreProgress(done: min(tokens, total), total: total))
            place = done.next
            guard !Task.isCancelled else {
                throw .refused("the rekeying was interrupted; token-cache keyring rotate goes on with the rest")
            }
        }
    }
}

extension KeyRing {
    /// The ring with one more key, which then seals.
    package func addingKey(createdAt: Int64) throws(StoreError) -> KeyRing {
        guard newest.number < Self.numbers.upperBound else {
            throw .refused("the key ring is at its last number, \(newest.number)")
        }
        do throws(KeyRingError) {
            let added = NumberedKey(number: newest.number + 1, createdAt: createdAt, key: try Self.newKey())
            return KeyRing(index: index, keys: keys + [added])
        } catch {
            throw .keyRing(error)
        }
    }
}

/// The changes of a key ring's file while its store is open.
extension Sealing {
    /// The ring in the file; fails if it is another store's, or lacks a key in use, which saving it would lose.
    package func ring(in file: KeyRingFile) throws(StoreError) -> KeyRing {
        guard let present = ring else { preconditionFailure("the store is sealed") }
        do throws(KeyRingError) {
            let found = try file.load(like: present)
            for key in present.keys where found.key(numbered: key.number)?.hasBytes(of: key.key) != true {
                throw .lacksKey(number: key.number, path: file.path)
            }
            // With the index key's object, which rows under way refer to.
            return KeyRing(index: present.index, keys: found.keys, active: present.active.number)
        } catch {
            throw .keyRing(error)
        }
    }

    /// Keeps the ring in the file under another name, before a key is retired that earlier backups need.
    ///
    /// - Returns: The path with that name; nil if it was there before.
    @discardableResult
    package func keepFile(_ file: KeyRingFile, with key: KeyRing.NumberedKey) throws(StoreError) -> String? {
        _ = try ring(in: file)
        do throws(KeyRingError) {
            return try file.keep(key)
        } catch {
            throw .keyRing(error)
        }
    }

    /// Puts a ring into the file, and then into use.
    package func save(_ new: KeyRing, to file: KeyRingFile) throws(StoreError) {
        do throws(KeyRingError) {
            // Must be on disk before a key seals.
            try file.save(new)
        } catch {
            if case .notDurable = error { replace(.sealed(new)) }
            throw .keyRing(error)
        }
        replace(.sealed(new))
    }
}

/// The key ring of a store that is opened.
package struct KeyRingChoice: Sendable {
    /// Nil in the clear.
    package let ring: KeyRing?
    /// Of the ring; empty in the clear.
    package let identity: [UInt8]
    /// Whether the ring and its file were made just now.
    package let isNew: Bool
}

extension KeyRingFile {
    /// Chooses the ring of a store when it is opened: that which the store was sealed with.
    ///
    /// An empty store accepts any ring, or gets a new one.
    ///
    /// - Parameters:
    ///   - identity: That of the ring that has sealed the store, as the store says; empty for none.
    ///   - isEmpty: Whether nothing is in the store.
    ///   - isSealed: Whether the settings ask for sealing.
    ///   - place: The store's, for errors.
    package func ring(
        fitting identity: [UInt8], isEmpty: Bool, isSealed: Bool, of place: String
    ) throws(StoreOpenError) -> KeyRingChoice {
        guard isSealed else {
            guard identity.isEmpty || isEmpty else { throw .sealed(path: place) }
            return KeyRingChoice(ring: nil, identity: [], isNew: false)
        }
        guard !identity.isEmpty || isEmpty else { throw .notSealed(path: place) }
        do throws(KeyRingError) {
            let (ring, isNew) = try load(orMaking: isEmpty)
            let found = try ring.identity()
            guard found == identity || isEmpty else { throw .ofAnotherStore(path: path) }
            return KeyRingChoice(ring: ring, identity: found, isNew: isNew)
        } catch {
            throw .keyRing(error)
        }
    }

    private func load(orMaking mayMake: Bool) throws(KeyRingError) -> (ring: KeyRing, isNew: Bool) {
        if let ring = try load() { return (ring, false) }
        guard mayMake else { throw .missing(path: path) }
        let ring = try KeyRingFile.newRing()
        return try FileReplacement.withLock(onFolderOf: path) { () throws(KeyRingError) in
            // Another server that names the same file may have made one: the file must not get another ring than that one uses.
            if let other = try load() { return (other, false) }
            try save(ring)
            return (ring, true)
        }
    }
}
