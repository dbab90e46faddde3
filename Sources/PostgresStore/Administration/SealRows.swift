#if PostgreSQL
internal import System
internal import TokenStore

/// Statements on the table `seal`: how many seals of each key were granted to servers.
///
/// Each belongs to one call of `PrimarySessions.perform`, whose deadline it gets.
struct SealRows {
    private let session: BlockingSession
    private let deadline: MonotonicTime

    init(_ session: BlockingSession, until deadline: MonotonicTime) {
        self.session = session
        self.deadline = deadline
    }

    /// The keys that the store names, and how often they may have sealed.
    func all() throws(PostgresError) -> [Int: Int64] {
        try session.run("SELECT key_number, seals FROM seal", until: deadline) { (result) throws(PostgresError) in
            Dictionary((0..<result.rowCount).map { (Int(result.integer($0, 0)), result.integer($0, 1)) }) {
                max($0, $1)
            }
        }
    }

    /// The outcome of a reservation.
    enum Reservation: Hashable, Sendable {
        /// The numbers after this one, `SealCounts.step` of them.
        case block(after: Int64)
        /// The key has sealed as often as it may.
        case exhausted
        /// The key was retired: the store names later ones and not this one.
        case retired
    }

    /// Takes a block of a key's numbers for this process.
    ///
    /// If it is repeated, the first block may be lost; nobody uses it.
    func reserve(_ keyNumber: Int) throws(PostgresError) -> Reservation {
        var parameters = Parameters()
        parameters.append(Int64(keyNumber))
        parameters.append(SealCounts.step)
        var withLimit = parameters
        withLimit.append(SealCounts.limit - SealCounts.step)
        while true {
            let end = try session.run(
                """
                UPDATE seal SET seals = seals + $2::bigint WHERE key_number = $1::bigint AND seals <= $3::bigint
                RETURNING seals
                """, withLimit, until: deadline
            ) { (result) throws(PostgresError) in result.rowCount == 1 ? result.integer(0, 0) : nil }
            if let end { return .block(after: end - SealCounts.step) }
            let known = try all()
            guard known[keyNumber] == nil else { return .exhausted }
            // Numbers of keys only grow, and the newest is never retired.
            guard keyNumber > known.keys.max() ?? 0 else { return .retired }
            let inserted = try session.run(
                "INSERT INTO seal (key_number, seals) VALUES ($1::bigint, $2::bigint) ON CONFLICT (key_number) DO NOTHING",
                parameters, until: deadline
            ) { (result) throws(PostgresError) in result.changedCount }
            if inserted == 1 { return .block(after: 0) }
        }
    }

    /// Gives back the last numbers of a block, if nobody has taken later ones meanwhile.
    ///
    /// Not to be repeated: another server may have taken them.
    func giveBack(_ keyNumber: Int, _ rest: (before: Int64, last: Int64)) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(Int64(keyNumber))
        parameters.append(rest.before)
        parameters.append(rest.last)
        try session.run(
            "UPDATE seal SET seals = $2::bigint WHERE key_number = $1::bigint AND seals = $3::bigint", parameters,
            until: deadline)
    }

    /// Removes a key, which then is granted no more seals.
    func remove(_ keyNumber: Int) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(Int64(keyNumber))
        try session.run("DELETE FROM seal WHERE key_number = $1::bigint", parameters, until: deadline)
    }

    /// Puts a key back that `remove` has removed.
    func restore(_ keyNumber: Int, _ seals: Int64) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(Int64(keyNumber))
        parameters.append(seals)
        try session.run(
            "INSERT INTO seal (key_number, seals) VALUES ($1::bigint, $2::bigint) ON CONFLICT (key_number) DO NOTHING",
            parameters, until: deadline)
    }
}
#endif
