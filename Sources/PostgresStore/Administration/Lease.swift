#if PostgreSQL
internal import System
internal import TokenStore

/// Work that one server at a time does for all, as the row of the table `lease` says who that is.
///
/// The holder counts the row's beat up. A server that has seen the same beat for long enough takes the lease over, by a
/// change that only one can make. So no clocks are compared, and no session of the database has to live as long as the
/// lease, as a lock of the database would ask for, which a pooler does not give.
///
/// Between the holder's last beat and its next one, two servers may hold it: the work must bear that.
struct Lease: Sendable {
    let name: String
    /// This server.
    let holder: [UInt8]
    /// How long a beat is waited for.
    let patience: Duration
    private var watch = LeaseWatch()

    init(_ name: String, holder: [UInt8], patience: Duration) {
        self.name = name
        self.holder = holder
        self.patience = patience
    }

    /// Takes the lease, or beats if this server has it.
    ///
    /// - Returns: Whether this server has it.
    mutating func take(_ sessions: PrimarySessions, within limit: Duration) throws(StoreError) -> Bool {
        let row = try sessions.perform(.reading, within: limit, repeats: true) {
            (session, deadline) throws(PostgresError) -> LeaseWatch.Row? in
            var parameters = Parameters()
            parameters.append(name)
            return try session.run("SELECT holder, beat FROM lease WHERE name = $1", parameters, until: deadline) {
                (result) throws(PostgresError) in
                result.rowCount == 0
                    ? nil : LeaseWatch.Row(holder: result.bytes(0, 0), beat: result.integer(0, 1))
            }
        }
        guard watch.mayTake(row, holder, patience, at: .now) else { return false }
        return try change(from: row, to: holder, sessions, within: limit)
    }

    /// Lets another server have the lease at once.
    mutating func release(_ sessions: PrimarySessions, within limit: Duration) throws(StoreError) {
        try sessions.perform(within: limit, repeats: true) { (session, deadline) throws(PostgresError) in
            var parameters = Parameters()
            parameters.append(name)
            parameters.append(holder)
            try session.run(
                "UPDATE lease SET holder = ''::bytea, beat = beat + 1 WHERE name = $1 AND holder = $2::bytea",
                parameters,
                until: deadline)
        }
    }

    /// Changes the row if nobody else has meanwhile.
    private func change(
        from row: LeaseWatch.Row?, to holder: [UInt8], _ sessions: PrimarySessions, within limit: Duration
    ) throws(StoreError) -> Bool {
        try sessions.perform(within: limit, repeats: true) { (session, deadline) throws(PostgresError) in
            var parameters = Parameters()
            parameters.append(name)
            parameters.append(holder)
            var sql = "INSERT INTO lease (name, holder, beat) VALUES ($1, $2::bytea, 1) ON CONFLICT (name) DO NOTHING"
            if let row {
                parameters.append(row.holder)
                parameters.append(row.beat)
                sql = """
                    UPDATE lease SET holder = $2::bytea, beat = beat + 1
                    WHERE name = $1 AND holder = $3::bytea AND beat = $4::bigint
                    """
            }
            return try session.run(sql, parameters, until: deadline) { (result) throws(PostgresError) in
                result.changedCount == 1
            }
        }
    }
}

/// Decides whether a lease may be taken, by what was seen of its row.
struct LeaseWatch: Sendable {
    struct Row: Equatable, Sendable {
        /// Empty for nobody.
        let holder: [UInt8]
        let beat: Int64
    }

    /// The row of another holder, and when it was first seen so.
    private var seen: (row: Row, since: MonotonicTime)?

    /// - Parameters:
    ///   - row: As it is now; nil if there is none.
    ///   - holder: Who asks.
    ///   - patience: How long another holder may stay without a beat.
    ///   - now: When the row was read.
    mutating func mayTake(_ row: Row?, _ holder: [UInt8], _ patience: Duration, at now: MonotonicTime) -> Bool {
        guard let row, !row.holder.isEmpty, row.holder != holder else {
            seen = nil
            return true
        }
        if let seen, seen.row == row { return (now - seen.since).count >= Nanoseconds(patience).count }
        seen = (row, now)
        return false
    }
}
#endif
