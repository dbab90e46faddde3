#if PostgreSQL
internal import System

/// The only row of the table `store`: what servers have to agree on.
struct StoreRow: Sendable, Hashable {
    /// The version of the tables.
    var schemaVersion: Int
    /// The identity of the ring that rows are sealed with; nil in the clear, and before the first start of a server.
    var keyRing: [UInt8]?
    var isSealed: Bool

    /// Whether a server has started yet.
    var isDecided: Bool { keyRing != nil || !isSealed }

    /// Reads it.
    ///
    /// - Returns: Nil if there is no such table, or nothing in it.
    static func read(from session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) -> StoreRow? {
        // An error would end the transaction that this may be a part of.
        let exists = try session.run("SELECT to_regclass('store') IS NOT NULL", until: deadline) {
            (result) throws(PostgresError) in result.integer(0, 0) != 0
        }
        guard exists else { return nil }
        return try session.run(
            "SELECT schema_version, key_ring, is_sealed FROM store WHERE one = 1", until: deadline
        ) { (result) throws(PostgresError) in
            guard result.rowCount == 1 else { return nil }
            return StoreRow(
                schemaVersion: Int(result.integer(0, 0)), keyRing: result.isNull(0, 1) ? nil : result.bytes(0, 1),
                isSealed: result.integer(0, 2) != 0)
        }
    }
}
#endif
