#if PostgreSQL
internal import System

/// A row of the table `server`: a server that runs, or did until it crashed.
struct RegisteredServer: Sendable, Hashable {
    /// 16 random bytes of the process.
    var id: [UInt8]
    /// The name of its machine.
    var name: String
    /// The version of its program.
    var version: String
    /// The numbers of the keys in its key ring; empty if the store is not sealed.
    var keyNumbers: [Int]
    /// The numbers of the keys with which it seals, or has sealed rows that are on their way to the database.
    var sealingNumbers: [Int] = []
    /// Seconds since 1970, by its own clock.
    var startedAt: Int64
    /// The same: it notes this every few seconds.
    var seenAt: Int64

    /// Without a sign for this many seconds, a server is taken to have ended.
    static let silence: Int64 = 60

    /// - Parameter now: In seconds since 1970.
    func isRunning(at now: Int64) -> Bool { seenAt > now - Self.silence }

    /// Follows the numbers of keys that seal, such as `1*,2`.
    private static let sealingMark: Character = "*"

    private static let columns = "id, name, version, key_numbers, started_at, seen_at"

    /// All rows, in the order of the servers' names.
    static func all(
        from session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> [RegisteredServer] {
        try session.run("SELECT \(columns) FROM server ORDER BY name, started_at", until: deadline) {
            (result) throws(PostgresError) in
            (0..<result.rowCount).map { row in
                let keys = result.text(row, 3).split(separator: ",")
                return RegisteredServer(
                    id: result.bytes(row, 0), name: result.text(row, 1), version: result.text(row, 2),
                    keyNumbers: keys.compactMap { Int($0.prefix { $0 != sealingMark }) },
                    sealingNumbers: keys.filter { $0.last == sealingMark }.compactMap { Int($0.dropLast()) },
                    startedAt: result.integer(row, 4), seenAt: result.integer(row, 5))
            }
        }
    }

    /// Writes the row, replacing the one before.
    func write(to session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(id)
        parameters.append(name)
        parameters.append(version)
        let keys = keyNumbers.map { "\($0)\(sealingNumbers.contains($0) ? String(Self.sealingMark) : "")" }
        parameters.append(keys.joined(separator: ","))
        parameters.append(startedAt)
        parameters.append(seenAt)
        try session.run(
            """
            INSERT INTO server (\(Self.columns))
            VALUES ($1::bytea, $2::text, $3::text, $4::text, $5::bigint, $6::bigint)
            ON CONFLICT (id) DO UPDATE SET key_numbers = excluded.key_numbers, seen_at = excluded.seen_at
            """, parameters, until: deadline)
    }

    /// Removes the row.
    ///
    /// - Parameter time: Nil, or what `seenAt` must still be.
    static func remove(
        _ id: [UInt8], ifSeenAt time: Int64? = nil, from session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(id)
        parameters.append(time)
        try session.run(
            "DELETE FROM server WHERE id = $1::bytea AND ($2::bigint IS NULL OR seen_at = $2::bigint)", parameters,
            until: deadline)
    }
}
#endif
