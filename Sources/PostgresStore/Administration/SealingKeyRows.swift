#if PostgreSQL
internal import System
internal import TokenStore

/// Statements on the table `sealing_key`, which names the keys that rows may be sealed with.
///
/// Each belongs to one call of `PrimarySessions.perform`, whose deadline it gets.
struct SealingKeyRows {
    private let session: BlockingSession
    private let deadline: MonotonicTime

    init(_ session: BlockingSession, until deadline: MonotonicTime) {
        self.session = session
        self.deadline = deadline
    }

    /// The numbers of the keys that the store names.
    func all() throws(PostgresError) -> Set<Int> {
        try session.run("SELECT number FROM sealing_key", until: deadline) { (result) throws(PostgresError) in
            Set((0..<result.rowCount).map { Int(result.integer($0, 0)) })
        }
    }

    /// Has the store name a key that is about to seal.
    ///
    /// - Returns: False if the key was retired: the store names later ones and not this one. Numbers of keys only grow, and the
    ///   newest is never retired.
    func admit(_ number: Int) throws(PostgresError) -> Bool {
        let named = try all()
        if named.contains(number) { return true }
        guard number > named.max() ?? 0 else { return false }
        try add([number])
        return true
    }

    /// Has the store name some keys.
    func add(_ numbers: Set<Int>) throws(PostgresError) {
        for number in numbers {
            try session.run(
                "INSERT INTO sealing_key (number) VALUES ($1::bigint) ON CONFLICT (number) DO NOTHING",
                Self.parameters(number),
                until: deadline)
        }
    }

    /// Removes a key, which then seals no more.
    func remove(_ number: Int) throws(PostgresError) {
        try session.run("DELETE FROM sealing_key WHERE number = $1::bigint", Self.parameters(number), until: deadline)
    }

    private static func parameters(_ number: Int) -> Parameters {
        var parameters = Parameters()
        parameters.append(Int64(number))
        return parameters
    }
}
#endif
