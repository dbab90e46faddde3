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
        do throws(SealingError) {
            fingerprint = try key.fingerprint()
        } catch {
            throw .sealing(error)
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
