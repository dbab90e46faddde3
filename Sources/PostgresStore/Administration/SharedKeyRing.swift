#if PostgreSQL
internal import Cryptography
internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// The key ring of a sealed store, of which each server has a copy in a file of its own.
///
/// Keys come into the file first, on one machine after the other, and one seals when all servers have it; see ServerRegistry.
///
/// Any thread; reads and writes the file.
final class SharedKeyRing: Sendable {
    let file: KeyRingFile
    private let sealing: Sealing
    private let report: @Sendable (StoreEvent) -> Void
    private let said = OnceEach()
    /// Locked while the ring is changed.
    private let contents: Mutex<Contents>

    private struct Contents {
        /// Of the file when it was last read.
        var stamp: FileStamp?
        /// Whether keys are in use that the file lacks; then it is read again each time.
        var isKeeping = false
    }

    /// - Parameters:
    ///   - file: Where the ring is.
    ///   - sealing: Must be given the ring from this file before any other method is called.
    ///   - report: Called when the file cannot be used.
    init(_ file: KeyRingFile, _ sealing: Sealing, report: @escaping @Sendable (StoreEvent) -> Void) {
        self.file = file
        self.sealing = sealing
        self.report = report
        contents = Mutex(Contents(stamp: FileStamp(path: file.path)))
    }

    var ring: KeyRing {
        guard let ring = sealing.ring else { preconditionFailure("the store is sealed") }
        return ring
    }

    // MARK: - The file

    /// Takes over what has changed in the file; what cannot be taken over is reported, and the present ring stays.
    ///
    /// - Parameter named: The keys that the store names. One of them that the file lacks stays in use.
    func refresh(named: Set<Int>) {
        let fault: String? = contents.withLock { contents in
            let stamp = FileStamp(path: file.path)
            guard stamp != contents.stamp || contents.isKeeping else { return nil }
            contents.stamp = stamp
            do throws(KeyRingError) {
                let (found, current) = (try read(), ring)
                var keys = found.keys
                var kept: Int?
                for key in current.keys where found.numberedKey(key.number) == nil {
                    // It was retired, unless rows may be sealed with it.
                    guard named.contains(key.number) || key.number == current.active.number else { continue }
                    keys.append(key)
                    kept = key.number
                }
                sealing.replace(
                    .sealed(KeyRing(index: current.index, keys: keys, active: current.active.number)))
                // Operators are told of the missing key the second time only: the first time, `keys retire` may have removed it from
                // the store a moment ago.
                defer { contents.isKeeping = kept != nil }
                return contents.isKeeping
                    ? kept.map { "\(KeyRingError.lacksKey(number: $0, path: file.path))" } : nil
            } catch {
                return "\(error); the ring that was read before stays in use"
            }
        }
        if let fault, said.isNew(fault) { report(.own(StoreNotice(.warning, fault))) }
    }

    /// The ring in the file; fails if it is another one than the present ring, or differs in a key.
    private func read() throws(KeyRingError) -> KeyRing {
        guard let found = try file.load() else { throw .missing(path: file.path) }
        let current = ring
        guard found.index.hasBytes(of: current.index) else { throw .ofAnotherStore(path: file.path) }
        for key in current.keys {
            guard let other = found.key(numbered: key.number) else { continue }
            guard other.hasBytes(of: key.key) else { throw .ofAnotherStore(path: file.path) }
        }
        return found
    }

    /// Reads the file before it is written; fails if it lacks a key.
    private func readWhole() throws(KeyRingError) -> KeyRing {
        let (found, current) = (try read(), ring)
        for key in current.keys where found.key(numbered: key.number) == nil {
            throw .lacksKey(number: key.number, path: file.path)
        }
        // Keeps the index key's object, which rows under way refer to.
        return KeyRing(index: current.index, keys: found.keys, active: current.active.number)
    }

    // MARK: - Changes

    /// Puts a new key into the file, which does not seal yet.
    ///
    /// - Parameter createdAt: In seconds since 1970.
    func addKey(createdAt: Int64) throws(StoreError) {
        try change { (ring) throws(StoreError) in
            guard ring.newest.number == ring.active.number else {
                throw .refused(
                    """
                    key \(ring.newest.number) was added before, and does not seal yet, as not all running servers have it; copy \
                    the key ring \(file.path) to them (token-cache keys list names them)
                    """)
            }
            guard ring.newest.number < KeyRing.numbers.upperBound else {
                throw .refused("the key ring is at its last number, \(ring.newest.number)")
            }
            do throws(SealingError) {
                return try ring.addingKey(createdAt: createdAt).activating(ring.active.number)
            } catch {
                throw .sealing(error)
            }
        }
    }

    /// Has another key seal from now on.
    func activate(_ number: Int) {
        contents.withLock { _ in
            let ring = ring
            guard ring.numberedKey(number) != nil else { return }
            sealing.replace(.sealed(ring.activating(number)))
        }
    }

    /// Refuses to retire a key that must stay.
    func refuseToRetire(_ number: Int) throws(StoreError) {
        try Self.refuseToRetire(number, of: ring)
    }

    private static func refuseToRetire(_ number: Int, of ring: KeyRing) throws(StoreError) {
        guard ring.key(numbered: number) != nil else {
            throw .refused("the key ring has no key \(number); token-cache keys list shows those it has")
        }
        guard number != ring.newest.number else {
            throw .refused("key \(number) is the newest; add another one first with token-cache keys add")
        }
        guard number != ring.active.number else {
            throw .refused(
                """
                key \(number) still seals, as not all running servers have key \(ring.newest.number); copy the key ring to them \
                (token-cache keys list names them)
                """)
        }
    }

    /// Takes a key out of the file, for good.
    func retireKey(_ number: Int) throws(StoreError) {
        try change { (ring) throws(StoreError) in
            try Self.refuseToRetire(number, of: ring)
            return ring.removingKey(numbered: number)
        }
    }

    private func change(_ body: (KeyRing) throws(StoreError) -> KeyRing) throws(StoreError) {
        try contents.withLock { (contents) throws(StoreError) in
            let former: KeyRing
            do throws(KeyRingError) {
                former = try readWhole()
            } catch {
                throw .keyRing(error)
            }
            let new = try body(former)
            defer { contents = Contents(stamp: FileStamp(path: file.path)) }
            do throws(KeyRingError) {
                // Must be on disk before a key seals.
                try file.save(new)
            } catch {
                if case .notDurable = error { sealing.replace(.sealed(new)) }
                throw .keyRing(error)
            }
            sealing.replace(.sealed(new))
        }
    }
}
#endif
