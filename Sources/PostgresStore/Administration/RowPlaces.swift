#if PostgreSQL
internal import System
internal import TokenStore

/// Statements on keys and versions of tokens or sessions.
struct RowPlaces {
    private let table: TransferTable
    private let session: BlockingSession
    private let deadline: MonotonicTime

    init(_ table: TransferTable, _ session: BlockingSession, until deadline: MonotonicTime) {
        self.table = table
        self.session = session
        self.deadline = deadline
    }

    /// The table, the column with what tells one state of a row from every other, and a condition for rows that are there.
    private var names: (table: String, version: String, condition: String) {
        switch table {
        case .tokens: ("token", "version", "value IS NOT NULL")
        case .sessions: ("session", "number", "true")
        }
    }

    /// Some rows in the order of their keys.
    func page(after key: [UInt8], limit: Int) throws(PostgresError) -> [TransferPlaces.Place] {
        let (table, version, condition) = names
        var parameters = Parameters()
        parameters.append(key)
        parameters.append(Int64(limit))
        return try session.run(
            """
            SELECT key, \(version) FROM \(table) WHERE key > $1::bytea AND \(condition) ORDER BY key LIMIT $2::bigint
            """, parameters, until: deadline
        ) { (result) throws(PostgresError) in
            (0..<result.rowCount).map {
                TransferPlaces.Place(key: EncodedBytes(result.bytes($0, 0)), version: result.integer($0, 1))
            }
        }
    }

    /// Those of some keys that have a row.
    func present(of keys: [[UInt8]]) throws(PostgresError) -> Set<[UInt8]> {
        let (table, _, condition) = names
        var parameters = Parameters()
        parameters.append(keys)
        return try session.run(
            "SELECT key FROM \(table) WHERE key = ANY ($1::bytea[]) AND \(condition)", parameters, until: deadline
        ) { (result) throws(PostgresError) in Set((0..<result.rowCount).map { result.bytes($0, 0) }) }
    }

    /// Removes rows that are as they were seen; returns how many.
    func remove(_ places: [TransferPlaces.Place]) throws(PostgresError) -> Int {
        let (table, version, _) = names
        var parameters = Parameters()
        parameters.append(places.map(\.key.bytes))
        parameters.append(places.map(\.version))
        // No two states of rows have the same version, so it need not be that of the key.
        return try session.run(
            "DELETE FROM \(table) WHERE key = ANY ($1::bytea[]) AND \(version) = ANY ($2::bigint[])", parameters,
            until: deadline
        ) { (result) throws(PostgresError) in result.changedCount }
    }
}
#endif
