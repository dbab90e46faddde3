#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Removes tokens by the keys of their rows, or erases a user.
struct TokenRemoval: Sendable {
    private let keys: [[UInt8]]
    private let state: PostgresState

    init(_ keys: [[UInt8]], _ state: PostgresState) {
        self.keys = keys
        self.state = state
    }

    /// How often a removal is repeated with a later version, as others go on writing to the same rows.
    private static let rounds = 8

    /// Removes the tokens.
    ///
    /// Blocks its thread until they are gone.
    ///
    /// - Returns: The keys that had one.
    func carryOut(_ sessions: PrimarySessions) throws(StoreError) -> Set<[UInt8]> {
        try repeated(sessions) { (session, deadline, version) throws(PostgresError) in
            try TokenRows(session, until: deadline).remove(keys, version, at: Int64(time(nil)))
        }
    }

    /// Removes the token and the sessions of a user, in one transaction.
    ///
    /// What is left is a tombstone for an hour, so that no delayed write brings the token back: a keyed hash of the user and
    /// two numbers. In the clear, where a key is the user itself, there is not even that. What PostgreSQL keeps of removed
    /// rows, in pages until they are vacuumed, in its WAL and in backups, is out of reach here.
    func erase(_ sessions: PrimarySessions) throws(StoreError) -> Erasure {
        let isSealed = state.sealing.ring != nil
        var ended = 0
        let tokens = try repeated(sessions) { (session, deadline, version) throws(PostgresError) in
            let (rows, tokens) = (SessionRows(session, until: deadline), TokenRows(session, until: deadline))
            // Before anything is removed, for the case that this is repeated because nobody knows whether it was.
            for key in keys { ended = max(ended, try rows.count(ofUser: key)) }
            for key in keys { _ = try rows.remove(ofUser: key) }
            let removed = try tokens.remove(keys, version, at: Int64(time(nil)))
            if !isSealed, removed.newer == nil { try tokens.delete(keys) }
            return removed
        }
        return Erasure(hadToken: !tokens.isEmpty, sessions: ended)
    }

    private func repeated(
        _ sessions: PrimarySessions,
        _ remove: (BlockingSession, MonotonicTime, TokenVersion) throws(PostgresError) -> (
            removed: Set<[UInt8]>, newer: TokenVersion?
        )
    ) throws(StoreError) -> Set<[UInt8]> {
        var found: Set<[UInt8]> = []
        for _ in 0..<Self.rounds {
            let version = state.versions.next()
            var former: Set<[UInt8]>?
            let (removed, newer) = try sessions.perform(within: PostgresAdministrator.stepTime, repeats: true) {
                (session, deadline) throws(PostgresError) in
                let before =
                    if let former { former } else { try TokenRows(session, until: deadline).present(of: keys) }
                defer { former = before }
                let (removed, newer) = try session.transaction(until: deadline) { () throws(PostgresError) in
                    try remove(session, deadline, version)
                }
                // A first attempt may have removed them without the outcome having come.
                return (former == nil ? removed : before, newer)
            }
            found.formUnion(removed)
            guard let newer else { return found }
            // A token that another server has written, whose clock is ahead.
            state.versions.note(newer)
        }
        throw .write(
            StoreFault(
                "the token is written again and again, by servers whose clocks are ahead; set their clocks right",
                mayRetry: true))
    }
}
#endif
