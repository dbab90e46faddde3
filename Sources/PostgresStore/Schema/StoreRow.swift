#if PostgreSQL
import TokenStore

/// What all servers must agree on: the only row of the table `store`, and the keys in the table `sealing_key`.
struct StoreRow: Sendable, Hashable {
    /// The version of the tables.
    ///
    /// If it is not this program's, nothing else is read.
    var schemaVersion: Int
    /// The identity of the ring that rows are sealed with; nil until a server first starts.
    var keyRing: [UInt8]?
    /// False if a server of version 1.0 has started with `sealing.enabled: off`.
    var isSealed = true
    /// The key that seals; nil if `keyRing` is.
    var sealingKey: Int?
    /// The fingerprints of the keys that rows may be sealed with, by number: they tell two keys of one number apart.
    var fingerprints: [Int: String] = [:]
    /// When a server last found its clock right, in seconds since 1970; nil if none has yet.
    var lookedAt: Int64?

    /// Whether a server has started yet.
    var isDecided: Bool { keyRing != nil || !isSealed }
    /// Whether a copy into the store has begun and is not complete.
    var isBeingFilled: Bool { schemaVersion == Schema.versionWhileFilled }

    /// Reads the row.
    ///
    /// - Returns: Nil if there is no such table, or no row in it.
    static func read(from connection: BlockingConnection) throws(PostgresError) -> StoreRow? {
        // Asked first, as an error would abort a transaction of the caller's.
        guard try connection.integer("SELECT to_regclass('store') IS NOT NULL") == 1,
            let version = try connection.integer("SELECT schema_version FROM store WHERE one = 1")
        else { return nil }
        var row = StoreRow(schemaVersion: Int(version))
        guard row.schemaVersion == Schema.version || row.isBeingFilled else { return row }
        // A pooler may send reads to a standby, where the row may be missing what a server has just written.
        let result = try connection.run(
            """
            SELECT key_ring, is_sealed, sealing_key, looked_at, number, fingerprint
            FROM store LEFT JOIN sealing_key ON number BETWEEN \(KeyRing.numbers.lowerBound) AND \(KeyRing.numbers.upperBound)
            WHERE one = 1 AND \(Statement.onPrimary)
            """)
        guard result.rowCount > 0 else { return nil }
        row.keyRing = result.isNull(0, 0) ? nil : result.bytes(0, 0)
        row.isSealed = result.integer(0, 1) != 0
        row.sealingKey = result.optionalInteger(0, 2).map { Int($0) }
        row.lookedAt = result.optionalInteger(0, 3)
        for index in 0..<result.rowCount where !result.isNull(index, 4) {
            row.fingerprints[Int(result.integer(index, 4))] = result.text(index, 5)
        }
        return row
    }

    /// Writes what the first server has decided; in a transaction of the caller's.
    func write(to connection: BlockingConnection) throws(PostgresError) {
        for (number, fingerprint) in fingerprints { _ = try Self.add(number, fingerprint, to: connection) }
        try connection.run(
            "UPDATE store SET key_ring = $1::bytea, sealing_key = $2::bigint WHERE one = 1",
            [.bytea(keyRing), .bigint(sealingKey.map { Int64($0) })])
    }

    /// Lets rows be sealed with a key.
    ///
    /// - Returns: False if the table has another key of this number, which stays.
    static func add(
        _ number: Int, _ fingerprint: String, to connection: BlockingConnection
    ) throws(PostgresError) -> Bool {
        try connection.integer(
            """
            INSERT INTO sealing_key (number, fingerprint) VALUES ($1::bigint, $2::text)
            ON CONFLICT (number) DO UPDATE SET fingerprint = excluded.fingerprint
            WHERE sealing_key.fingerprint = excluded.fingerprint RETURNING number
            """, [.bigint(Int64(number)), .text(fingerprint)]) != nil
    }

    /// Makes a key the one that seals.
    ///
    /// - Returns: False if rows may not be sealed with it.
    static func use(_ number: Int, on connection: BlockingConnection) throws(PostgresError) -> Bool {
        try isAllowed("UPDATE store SET sealing_key = $1::bigint WHERE one = 1", number, connection)
    }

    /// Lets no further row be sealed with a key.
    ///
    /// The database itself searches the tables, which takes long, waits for uncommitted rows, and refuses this if a row needs the key
    /// or the key seals. Afterwards it refuses every row with the key, also from a server that was paused meanwhile. See
    /// `Schema.additions`.
    ///
    /// - Returns: False if the database refuses it.
    static func retire(_ number: Int, on connection: BlockingConnection) throws(PostgresError) -> Bool {
        try isAllowed("DELETE FROM sealing_key WHERE number = $1::bigint", number, connection)
    }

    private static func isAllowed(
        _ sql: String, _ number: Int, _ connection: BlockingConnection
    ) throws(PostgresError) -> Bool {
        do {
            try connection.run(sql, [.bigint(Int64(number))])
            return true
        } catch {
            guard error.state == .foreignKeyViolation else { throw error }
            return false
        }
    }
}
#endif
