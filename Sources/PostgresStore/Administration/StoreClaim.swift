#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Finds the keys of a store when a server starts, and has all servers agree on them.
///
/// The first server that starts writes into the database which key ring seals. An empty database that no other server uses accepts
/// another ring, as an empty store in a file does.
struct StoreClaim: Sendable {
    private let sessions: PrimarySessions
    private let options: StoreOptions
    private let report: @Sendable (StoreEvent) -> Void
    private let limit: Duration

    /// - Parameter limit: How long a step may take, the search for the primary included.
    init(
        _ sessions: PrimarySessions, _ options: StoreOptions, within limit: Duration,
        report: @escaping @Sendable (StoreEvent) -> Void
    ) {
        (self.sessions, self.options, self.limit, self.report) = (sessions, options, limit, report)
    }

    /// The ring of the store; nil in the clear.
    func ring() throws(StoreOpenError) -> KeyRing? {
        // Twice at most, unless others change it all the time.
        for _ in 0..<5 {
            let row = try row()
            let chosen = try choose(row)
            let (identity, isSealed) = (chosen.ring == nil ? nil : chosen.identity, chosen.ring != nil)
            if row.keyRing != identity || row.isSealed != isSealed {
                guard try claim(identity, isSealed, in: row) else {
                    // Another server was first. Nothing was sealed with the ring that was made here.
                    if chosen.isNew { _ = unsafe unlink(options.keyRing.path) }
                    continue
                }
            }
            if chosen.isNew { report(.madeKeyRing(path: options.keyRing.path)) }
            return chosen.ring
        }
        throw .store(
            StoreFault("other servers change the store's key ring at the same time; start one after the other"))
    }

    /// The key that seals at first: the newest that has sealed already, otherwise the newest that all running servers have.
    ///
    /// The registry has a newer one seal when all servers have it.
    func activeKey(of ring: KeyRing) throws(StoreOpenError) -> Int {
        let now = Int64(time(nil))
        let (named, others) = try Self.asking(sessions, .reading, within: limit) { (session, deadline) throws(PostgresError) in
            let servers = try RegisteredServer.all(from: session, until: deadline)
            return (try SealRows(session, until: deadline).all(), servers.filter { $0.isRunning(at: now) })
        }
        let numbers = ring.keys.map(\.number)
        return numbers.last { named[$0] != nil }
            ?? numbers.last { number in others.allSatisfy { $0.keyNumbers.contains(number) } } ?? ring.newest.number
    }

    /// Runs statements that may be repeated.
    static func asking<Value>(
        _ sessions: PrimarySessions, _ purpose: PrimarySessions.Purpose, within limit: Duration,
        _ body: (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) throws(StoreOpenError) -> Value {
        do throws(StoreError) {
            return try sessions.perform(purpose, within: limit, repeats: true, body)
        } catch {
            switch error {
            case .read(let fault), .write(let fault), .unavailable(let fault): throw .store(fault)
            default: throw .store(StoreFault("\(error)"))
            }
        }
    }

    private func row() throws(StoreOpenError) -> StoreRow {
        let outcome = try Self.asking(sessions, .reading, within: limit) { (session, deadline) throws(PostgresError) in
            try SchemaCheck.look(session, until: deadline)
        }
        switch outcome {
        case .success(let row): return row
        case .failure(let fault): throw StoreOpenError(fault)
        }
    }

    private func choose(_ row: StoreRow) throws(StoreOpenError) -> KeyRingChoice.Outcome {
        let choice = KeyRingChoice(options.keyRing, isSealed: options.isSealed)
        func ring(isEmpty: Bool) throws(KeyRingChoice.Refusal) -> KeyRingChoice.Outcome {
            try choice.ring(fitting: row.keyRing ?? [], isEmpty: isEmpty)
        }
        do throws(KeyRingChoice.Refusal) {
            return try ring(isEmpty: !row.isDecided)
        } catch {
            // Asked only now, as it takes some statements.
            if try isUnused() {
                do throws(KeyRingChoice.Refusal) {
                    return try ring(isEmpty: true)
                } catch {
                    throw described(error)
                }
            }
            throw described(error)
        }
    }

    private func described(_ refusal: KeyRingChoice.Refusal) -> StoreOpenError {
        switch refusal {
        case .keyRing(let error): .keyRing(error)
        case .notSealed:
            .store(
                StoreFault(
                    """
                    the database holds tokens in the clear, and sealing is on; set sealing.enabled to off, or export the tokens and \
                    import them into a new database
                    """))
        case .sealed:
            .store(StoreFault("the tokens in the database are sealed, and sealing is off; set sealing.enabled to on"))
        }
    }

    /// Whether nothing is stored, and no other server runs.
    private func isUnused() throws(StoreOpenError) -> Bool {
        let now = Int64(time(nil))
        return try Self.asking(sessions, .reading, within: limit) { (session, deadline) throws(PostgresError) in
            for table in ["token", "session"] {
                let hasRow = try session.run("SELECT 1 FROM \(table) LIMIT 1", until: deadline) {
                    (result) throws(PostgresError) in result.rowCount > 0
                }
                if hasRow { return false }
            }
            return try !RegisteredServer.all(from: session, until: deadline).contains { $0.isRunning(at: now) }
        }
    }

    /// Writes which ring seals.
    ///
    /// - Returns: Whether the row was still as it was read.
    private func claim(
        _ identity: [UInt8]?, _ isSealed: Bool, in row: StoreRow
    ) throws(StoreOpenError) -> Bool {
        var parameters = Parameters()
        parameters.append(identity)
        parameters.append(isSealed)
        parameters.append(row.keyRing)
        parameters.append(row.isSealed)
        let changed = try Self.asking(sessions, .writing, within: limit) { (session, deadline) throws(PostgresError) in
            try session.run(
                """
                UPDATE store SET key_ring = $1::bytea, is_sealed = $2::boolean WHERE one = 1 AND is_sealed = $4::boolean
                AND (key_ring = $3::bytea OR (key_ring IS NULL AND $3::bytea IS NULL))
                """, parameters, until: deadline
            ) { (result) throws(PostgresError) in result.changedCount }
        }
        if changed == 1 { return true }
        // An earlier attempt, whose answer was lost, may have done it.
        let present = try self.row()
        return present.keyRing == identity && present.isSealed == isSealed
    }
}
#endif
