#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Finds the keys of a store when a server starts, and has all servers agree on them.
///
/// The first server that starts writes into the database which key ring seals. An empty database that no other server uses accepts
/// another ring, as an empty store in a file does: each server registers in the transaction in which it agrees on the ring, so that
/// no other one replaces the ring a moment later.
struct StoreClaim: Sendable {
    private let sessions: PrimarySessions
    private let options: StoreOptions
    private let registry: ServerRegistry
    private let report: @Sendable (StoreEvent) -> Void
    private let limit: Duration

    /// - Parameters:
    ///   - sessions: Used one at a time.
    ///   - options: Name the key ring.
    ///   - registry: This process among all that use the database.
    ///   - limit: How long a step may take, the search for the primary included.
    ///   - report: Told of a key ring that was made.
    init(
        _ sessions: PrimarySessions, _ options: StoreOptions, _ registry: ServerRegistry, within limit: Duration,
        report: @escaping @Sendable (StoreEvent) -> Void
    ) {
        (self.sessions, self.options, self.registry) = (sessions, options, registry)
        (self.limit, self.report) = (limit, report)
    }

    /// The ring of the store; nil in the clear.
    func ring() throws(StoreOpenError) -> KeyRing? {
        // Twice at most, unless others change it all the time.
        for _ in 0..<5 {
            let row = try row()
            let chosen = try choose(row)
            guard try claim(chosen, in: row) else {
                // Another server was first, and nothing has been sealed with the ring that was made here.
                if chosen.isNew { _ = unsafe unlink(options.keyRing.path) }
                continue
            }
            if chosen.isNew { report(.madeKeyRing(path: options.keyRing.path)) }
            if chosen.ring != nil, let group = options.keyRing.volumeGroup {
                report(.keyRingOpenToGroup(path: options.keyRing.path, group: group))
            }
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
        let (named, others) = try Self.asking(sessions, .reading, within: limit) {
            (session, deadline) throws(PostgresError) in
            let servers = try RegisteredServer.all(from: session, until: deadline)
            return (try SealingKeyRows(session, until: deadline).all(), servers.filter { $0.isRunning(at: now) })
        }
        let numbers = ring.keys.map(\.number)
        return numbers.last { named.contains($0) }
            ?? numbers.last { number in others.allSatisfy { $0.keyNumbers.contains(number) } } ?? ring.newest.number
    }

    /// When a server last found its clock right, in seconds since 1970; nil if that was never stored.
    func lastClockLook() throws(StoreOpenError) -> Int64? {
        try Self.asking(sessions, .reading, within: limit) { (session, deadline) throws(PostgresError) in
            try session.run("SELECT looked_at FROM store WHERE one = 1", until: deadline) {
                (result) throws(PostgresError) in result.rowCount == 0 ? nil : result.optionalInteger(0, 0)
            }
        }
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

    private func isUnused() throws(StoreOpenError) -> Bool {
        try Self.asking(sessions, .reading, within: limit) { (session, deadline) throws(PostgresError) in
            try isUnused(session, until: deadline)
        }
    }

    /// Whether nothing is stored, and no other server runs.
    private func isUnused(
        _ session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> Bool {
        let now = Int64(time(nil))
        for table in ["token", "session"] {
            let hasRow = try session.run("SELECT 1 FROM \(table) LIMIT 1", until: deadline) {
                (result) throws(PostgresError) in result.rowCount > 0
            }
            if hasRow { return false }
        }
        return try !RegisteredServer.all(from: session, until: deadline).contains {
            $0.id != registry.id && $0.isRunning(at: now)
        }
    }

    /// Writes which ring seals, and registers this process.
    ///
    /// - Parameter row: What the choice was made for.
    /// - Returns: Whether the row was still the same.
    private func claim(_ chosen: KeyRingChoice.Outcome, in row: StoreRow) throws(StoreOpenError) -> Bool {
        var wanted = row
        (wanted.keyRing, wanted.isSealed) = (chosen.ring == nil ? nil : chosen.identity, chosen.ring != nil)
        return try Self.asking(sessions, .writing, within: limit) { (session, deadline) throws(PostgresError) in
            try session.transaction(until: deadline) { () throws(PostgresError) in
                // One server after the other.
                try session.run("SELECT 1 FROM store WHERE one = 1 FOR UPDATE", until: deadline)
                // An earlier attempt, whose answer was lost, may have done it.
                guard let present = try StoreRow.read(from: session, until: deadline),
                    present == row || present == wanted
                else { return false }
                if present != wanted {
                    if present.isDecided, try !isUnused(session, until: deadline) { return false }
                    try write(wanted, session, until: deadline)
                }
                try registry.announce(chosen.ring, on: session, until: deadline)
                return true
            }
        }
    }

    private func write(
        _ row: StoreRow, _ session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(row.keyRing)
        parameters.append(row.isSealed)
        try session.run(
            "UPDATE store SET key_ring = $1::bytea, is_sealed = $2::boolean WHERE one = 1", parameters, until: deadline)
    }
}
#endif
