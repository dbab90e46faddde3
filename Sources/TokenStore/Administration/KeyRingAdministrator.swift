import Cryptography
import System

/// Changes the key ring of an open store.
package protocol KeyRingAdministrator: Sendable {
    /// Why the ring's file cannot take the place of the ring in use, so that the next start would fail or could not read all
    /// tokens; nil if it can. Reads the file.
    var fileFault: KeyRingError? { get }

    /// The numbered keys, the oldest first.
    func keys() async throws(StoreError) -> [SealingKey]

    /// The numbers of keys that seal rows but are missing from the ring, in ascending order, as far as the walk has seen; nil for a
    /// store that finds them in another way.
    func missingKeys() async throws(StoreError) -> [Int]?

    /// Adds a new key. It seals from now on, or after `useKey` in a store that servers share. Rows that older keys have
    /// sealed stay readable.
    func addKey() async throws(StoreError) -> SealingKey

    /// Makes all servers that share the store seal with a key from now on.
    func useKey(numbered number: Int) async throws(StoreError) -> SealingKey

    /// Removes a key from the ring.
    ///
    /// Refused for the newest key, for the key that seals, and until it is certain that it opens no row; see `StoreAdministrator.walk`. A
    /// row that it does not open does not need it.
    func retireKey(numbered number: Int) async throws(StoreError)
}

/// What operators may see of a key.
package struct SealingKey: Codable, Hashable, Sendable {
    package var number: Int
    /// Seconds since 1970.
    package var createdAt: Int64
    /// Distinguishes it from another key with the same number.
    package var fingerprint: String
    /// Whether new rows are sealed with it.
    package var seals: Bool

    /// - Parameters:
    ///   - key: A key of a ring.
    ///   - active: The number of the key that seals.
    package init(_ key: KeyRing.NumberedKey, sealing active: Int) {
        (number, createdAt, seals) = (key.number, key.createdAt, key.number == active)
        fingerprint = key.fingerprint()
    }
}

extension KeyRing {
    /// A copy of the ring with one more key, which seals.
    package func addingKey(createdAt: Int64) throws(StoreError) -> KeyRing {
        guard newest.number < Self.numbers.upperBound else {
            throw .refused("the key ring is at its last number, \(newest.number)")
        }
        let added = NumberedKey(number: newest.number + 1, createdAt: createdAt, key: .random())
        return KeyRing(index: index, keys: keys + [added])
    }
}

/// Changes to a key ring's file while its store is open.
extension Sealing {
    /// Reads the ring in the file; fails if it belongs to another store or lacks a key in use, which saving it would
    /// lose.
    package func ring(in file: KeyRingFile) throws(StoreError) -> KeyRing {
        let present = ring
        do throws(KeyRingError) {
            let found = try file.load(like: present)
            for key in present.keys where found.key(numbered: key.number)?.hasBytes(of: key.key) != true {
                throw .lacksKey(number: key.number, path: file.path)
            }
            return found.activating(present.active.number)
        } catch {
            throw .keyRing(error)
        }
    }

    /// Why the ring in the file cannot take the place of the one in use; nil if it can.
    ///
    /// Of the keys, the one that seals must be in the file. Older ones may be missing while they are retired.
    package func fault(of file: KeyRingFile) -> KeyRingError? {
        let (present, active) = (ring, ring.active)
        do {
            let found = try file.load(like: present)
            let isThere = found.key(numbered: active.number)?.hasBytes(of: active.key) == true
            return isThere ? nil : .lacksKey(number: active.number, path: file.path)
        } catch {
            return error
        }
    }

    /// Keeps the present file under a second name before a key is retired, because earlier backups may need that key.
    ///
    /// - Returns: The second path; nil if it existed already.
    @discardableResult
    package func keepFile(_ file: KeyRingFile, with key: KeyRing.NumberedKey) throws(StoreError) -> String? {
        _ = try ring(in: file)
        do {
            return try file.keep(key)
        } catch {
            throw .keyRing(error)
        }
    }

    /// Saves a ring to the file, and then uses it.
    package func save(_ new: KeyRing, to file: KeyRingFile) throws(StoreError) {
        do {
            // The file must be on disk before the new key seals anything.
            try file.save(new)
        } catch {
            if case .notDurable = error { replace(new) }
            throw .keyRing(error)
        }
        replace(new)
    }
}

/// The key ring with which a store is opened.
package struct KeyRingChoice: Sendable {
    package let ring: KeyRing
    /// The ring's identity.
    package let identity: [UInt8]
    /// Whether the ring and its file were just created.
    package let isNew: Bool
}

extension KeyRingFile {
    /// Chooses the ring of a store that is being opened: the one that the store was sealed with.
    ///
    /// An empty store accepts any ring, or gets a new one.
    ///
    /// - Parameters:
    ///   - identity: The identity of the ring that has sealed the store, as the store records it; empty if it records
    ///     none.
    ///   - isEmpty: Whether the store has no rows.
    ///   - place: Names the store in error texts.
    package func ring(
        fitting identity: [UInt8], isEmpty: Bool, of place: String
    ) throws(StoreOpenError) -> KeyRingChoice {
        guard !identity.isEmpty || isEmpty else { throw .notSealed(place: place) }
        do throws(KeyRingError) {
            let (ring, isNew) = try load(orMaking: isEmpty)
            let found = ring.identity()
            guard found == identity || isEmpty else { throw .ofAnotherStore(path: path) }
            return KeyRingChoice(ring: ring, identity: found, isNew: isNew)
        } catch {
            throw .keyRing(error)
        }
    }

    private func load(orMaking mayMake: Bool) throws(KeyRingError) -> (ring: KeyRing, isNew: Bool) {
        if let ring = try load() { return (ring, false) }
        guard mayMake else { throw .missing(path: path) }
        let ring = KeyRingFile.newRing()
        return try withLock(or: \.self) { () throws(KeyRingError) in
            // Another server with the same file may have made a ring meanwhile, which must not be replaced.
            if let other = try load() { return (other, false) }
            try saveFirst(ring)
            return (ring, true)
        }
    }
}
