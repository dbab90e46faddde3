internal import Glibc
internal import System

/// Chooses the key ring of a store when it is opened.
package struct KeyRingChoice: Sendable {
    private let file: KeyRingFile
    private let isSealed: Bool

    /// - Parameters:
    ///   - file: Where the ring is, or will be.
    ///   - isSealed: Whether the settings ask for sealing.
    package init(_ file: KeyRingFile, isSealed: Bool) {
        self.file = file
        self.isSealed = isSealed
    }

    /// What was chosen.
    package struct Outcome: Sendable {
        /// Nil in the clear.
        package let ring: KeyRing?
        /// Of the ring; empty in the clear.
        package let identity: [UInt8]
        /// Whether the ring and its file were made just now.
        package let isNew: Bool
    }

    /// Why there is none.
    package enum Refusal: Error {
        case keyRing(KeyRingError)
        /// The store has tokens in the clear, and the settings ask for sealing.
        case notSealed
        /// The store is sealed, and the settings do not ask for it.
        case sealed
    }

    /// The ring that a store was sealed with.
    ///
    /// An empty store accepts any ring, or gets a new one.
    ///
    /// - Parameters:
    ///   - identity: That of the ring that has sealed the store, as the store says; empty for none.
    ///   - isEmpty: Whether nothing is in the store.
    package func ring(fitting identity: [UInt8], isEmpty: Bool) throws(Refusal) -> Outcome {
        guard isSealed else {
            guard identity.isEmpty || isEmpty else { throw .sealed }
            return Outcome(ring: nil, identity: [], isNew: false)
        }
        guard !identity.isEmpty || isEmpty else { throw .notSealed }
        do throws(KeyRingError) {
            let (ring, isNew) = try load(isNew: isEmpty)
            let found = try Self.identity(of: ring)
            guard found == identity || isEmpty else { throw .ofAnotherStore(path: file.path) }
            return Outcome(ring: ring, identity: found, isNew: isNew)
        } catch {
            throw .keyRing(error)
        }
    }

    private func load(isNew: Bool) throws(KeyRingError) -> (ring: KeyRing, isNew: Bool) {
        if let ring = try file.load() { return (ring, false) }
        guard isNew else { throw .missing(path: file.path) }
        let ring: KeyRing
        do throws(SealingError) {
            ring = try KeyRing.random(createdAt: Int64(time(nil)))
        } catch {
            throw .library(error)
        }
        return try FileReplacement.withLock(onFolderOf: file.path) { () throws(KeyRingError) in
            // Another server that names the same file may have made one: the file must not get another ring than that one uses.
            if let other = try file.load() { return (other, false) }
            try file.save(ring)
            return (ring, true)
        }
    }

    private static func identity(of ring: KeyRing) throws(KeyRingError) -> [UInt8] {
        do throws(SealingError) {
            return try ring.identity()
        } catch {
            throw .library(error)
        }
    }
}
