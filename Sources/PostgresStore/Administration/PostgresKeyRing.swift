#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Changes the key ring that the servers of a store share.
///
/// Any thread.
struct PostgresKeyRing: KeyRingAdministrator {
    private let sessions: PrimarySessions
    private let state: PostgresState
    private let registry: ServerRegistry
    private let ring: SharedKeyRing

    /// - Parameter ring: That of the registry.
    init(_ sessions: PrimarySessions, _ state: PostgresState, _ registry: ServerRegistry, _ ring: SharedKeyRing) {
        (self.sessions, self.state, self.registry, self.ring) = (sessions, state, registry, ring)
    }

    /// How long it may take to look for rows that a key has sealed: the whole of the tables is read.
    private static let scanTime = Duration.seconds(6 * 3_600)

    func keys() async throws(StoreError) -> [SealingKey] {
        try await onThread { () throws(StoreError) in
            try registry.beat()
            return ring.ring.keys.map { described($0) }
        }
    }

    /// The inspector finds them, without a server.
    func missingKeys() -> [Int]? { nil }

    func addKey() async throws(StoreError) -> SealingKey {
        try await onThread { () throws(StoreError) in
            // So that a key that all have is not waited for.
            try registry.beat()
            try ring.addKey(createdAt: Int64(time(nil)))
            // Has it seal if this server is the only one that runs.
            try registry.beat()
            return described(ring.ring.newest)
        }
    }

    private func described(_ key: KeyRing.NumberedKey) -> SealingKey {
        let active = ring.ring.active.number
        return SealingKey(
            number: key.number, createdAt: key.createdAt, isNewest: key.number == active,
            missingOn: key.number > active ? registry.servers(lacking: key.number) : nil)
    }

    private func onThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        try await sessions.onThread(body)
    }

    // MARK: - Retiring

    func retireKey(numbered number: Int) async throws(StoreError) {
        try await onThread { () throws(StoreError) in
            try registry.beat()
            try ring.refuseToRetire(number)
            try refuseIfSealing(number)
            // From here on no server begins to seal with it.
            let wasNamed = try writing { (session, deadline) throws(PostgresError) in
                let rows = SealingKeyRows(session, until: deadline)
                let wasNamed = try rows.all().contains(number)
                try rows.remove(number)
                return wasNamed
            }
            do throws(StoreError) {
                // One may have started meanwhile with an old copy of the ring.
                try registry.beat()
                try refuseIfSealing(number)
                try refuseIfUsed(number)
                try ring.retireKey(number)
            } catch {
                if wasNamed {
                    try writing { (session, deadline) throws(PostgresError) in
                        try SealingKeyRows(session, until: deadline).add([number])
                    }
                }
                throw error
            }
        }
    }

    private func writing<Value>(
        _ body: (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        try sessions.perform(within: PostgresAdministrator.stepTime, repeats: true, body)
    }

    private func refuseIfSealing(_ number: Int) throws(StoreError) {
        let servers = registry.servers(sealingWith: number)
        guard servers.isEmpty else {
            throw .refused(
                """
                servers still seal with key \(number), or have only just stopped: \(servers.joined(separator: ", ")); try again in a \
                minute
                """)
        }
    }

    private func refuseIfUsed(_ number: Int) throws(StoreError) {
        let isUsed = try sessions.perform(.reading, within: Self.scanTime, repeats: true) {
            (session, deadline) throws(PostgresError) in
            var isUsed = false
            var parameters = Parameters()
            parameters.append(Int64(number))
            for table in ["token", "session"] where !isUsed {
                isUsed = try session.run(
                    "SELECT 1 FROM \(table) WHERE key_number = $1::bigint LIMIT 1", parameters, until: deadline
                ) { (result) throws(PostgresError) in result.rowCount > 0 }
            }
            return isUsed
        }
        guard !isUsed else {
            throw .refused("tokens or sessions are still sealed with key \(number); run token-cache rekey first")
        }
    }

    // MARK: - Rekeying

    /// Rows that are read at a time.
    private static let pageCount = 200

    func rekey(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> Rekeying {
        let total = try await PostgresAdministrator(sessions, state, keyRing: self, processID: registry.id).statistics(
            exactly: false
        ).tokens
        progress(StoreProgress(done: 0, total: total))
        var result = Rekeying()
        var key: [UInt8]? = []
        while let start = key {
            let step = try await onThread { () throws(StoreError) in try rekeyTokens(after: start) }
            result.tokens += step.seen
            result.rekeyed += step.rekeyed
            result.unreadable += step.unreadable
            progress(StoreProgress(done: min(result.tokens, total), total: total))
            key = step.next
            try stopIfCancelled()
        }
        key = []
        while let start = key {
            let step = try await onThread { () throws(StoreError) in try rekeySessions(after: start) }
            result.unreadable += step.unreadable
            key = step.next
            try stopIfCancelled()
        }
        return result
    }

    private func stopIfCancelled() throws(StoreError) {
        guard Task.isCancelled else { return }
        throw .refused("the rekeying was interrupted; token-cache rekey goes on with the rest")
    }

    /// The result of one step.
    private struct Step: Sendable {
        /// The key after which the next step begins; nil when there is none.
        var next: [UInt8]?
        var seen = 0
        var rekeyed = 0
        var unreadable = 0
    }

    private func rekeyTokens(after key: [UInt8]) throws(StoreError) -> Step {
        let (rows, isLast) = try sessions.perform(.reading, within: PostgresAdministrator.stepTime, repeats: true) {
            (session, deadline) throws(PostgresError) in
            try TokenRows(session, until: deadline).page(after: key, limit: Self.pageCount)
        }
        var step = Step(next: isLast ? nil : rows.last?.key, seen: rows.count)
        var coder = RowCoder(state.sealing)
        var sealed: [StoredToken] = []
        for row in rows {
            do throws(SealingError) {
                if let new = try Self.sealedAgain(row, &coder) { sealed.append(new) }
            } catch {
                try throwUnlessUnreadable(error)
                step.unreadable += 1
            }
        }
        guard !sealed.isEmpty else { return step }
        step.rekeyed = sealed.count
        try writing { (session, deadline) throws(PostgresError) in
            try session.transaction(until: deadline) { () throws(PostgresError) in
                try TokenRows(session, until: deadline).replaceSeals(of: sealed)
            }
        }
        return step
    }

    /// Every row would fail for the same reason, unless the row itself does not open.
    private func throwUnlessUnreadable(_ error: SealingError) throws(StoreError) {
        switch error {
        case .retired, .library: throw .sealing(error)
        case .missingKey, .tampered, .malformed, .misplaced: break
        }
    }

    /// The row sealed with the key that seals; nil if it is that already.
    private static func sealedAgain(_ row: StoredToken, _ coder: inout RowCoder) throws(SealingError) -> StoredToken? {
        guard row.value != nil, try coder.activeKeyNumber() != row.keyNumber else { return nil }
        let token = try row.token(&coder)
        let new = try coder.row(of: token, row.times)
        return StoredToken(
            key: row.key, version: row.version, times: row.times, keyNumber: new.keyNumber, value: new.value)
    }

    private func rekeySessions(after key: [UInt8]) throws(StoreError) -> Step {
        let rows = try sessions.perform(.reading, within: PostgresAdministrator.stepTime, repeats: true) {
            (session, deadline) throws(PostgresError) in
            try SessionRows(session, until: deadline).page(after: key, limit: Self.pageCount)
        }
        var step = Step(next: rows.count < Self.pageCount ? nil : rows.last?.key, seen: rows.count)
        var coder = RowCoder(state.sealing)
        var sealed: [(row: SessionRow, former: Int)] = []
        for row in rows where row.keyNumber != ring.ring.active.number {
            do throws(SealingError) {
                let opened = try coder.open(row)
                sealed.append((try coder.row(of: opened.session, opened.key), row.keyNumber))
            } catch {
                try throwUnlessUnreadable(error)
                step.unreadable += 1
            }
        }
        step.rekeyed = sealed.count
        for (row, former) in sealed {
            try writing { (session, deadline) throws(PostgresError) in
                try SessionRows(session, until: deadline).replaceUser(of: row, sealedWith: former)
            }
        }
        return step
    }
}
#endif
