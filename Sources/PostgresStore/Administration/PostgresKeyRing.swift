#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Changes the key ring that the servers of a store share.
///
/// A key is added to the file of one server, brought to the others, and then told to seal; see StoreAgreement. Any thread.
struct PostgresKeyRing: KeyRingAdministrator {
    private let sessions: PrimarySessions
    private let state: PostgresState
    private let users: any UserAdministrator
    private let agreement: StoreAgreement

    init(
        _ sessions: PrimarySessions, _ state: PostgresState, users: any UserAdministrator, _ agreement: StoreAgreement
    ) {
        (self.sessions, self.state, self.users, self.agreement) = (sessions, state, users, agreement)
    }

    /// How long it may take to look for rows that a key has sealed: the whole of the tables is read.
    private static let scanTime = Duration.seconds(6 * 3_600)

    private var ring: KeyRing {
        guard let ring = agreement.ring else { preconditionFailure("the store is sealed") }
        return ring
    }

    private func onThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        try await sessions.onThread(body)
    }

    private func writing<Value>(
        _ body: (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        try sessions.perform(within: PostgresAdministrator.stepTime, repeats: true, body)
    }

    func keys() async throws(StoreError) -> [SealingKey] {
        try await onThread { () throws(StoreError) in
            let row = try agreement.look(sessions)
            return try ring.keys.map { (key) throws(StoreError) in
                try SealingKey(key, sealing: row.sealingKey ?? key.number)
            }
        }
    }

    /// The inspector finds them, without a server.
    func missingKeys() -> [Int]? { nil }

    // MARK: - Changes

    func addKey() async throws(StoreError) -> SealingKey {
        try await onThread { () throws(StoreError) in
            let row = try agreement.look(sessions)
            try check(try agreement.completeFile(), row)
            // Its number may be given to another key in the database.
            if let missing = row.fingerprints.keys.filter({ ring.numberedKey($0) == nil }).max() {
                throw .refused(
                    """
                    key \(missing) was added on another server, and the key ring \(agreement.file.path) lacks it; copy the key ring \
                    from there first
                    """)
            }
            let active = row.sealingKey ?? ring.active.number
            // One that the database does not name is in the file only, as a first attempt was interrupted.
            if row.fingerprints[ring.newest.number] != nil {
                try agreement.change { (ring) throws(StoreError) in try Self.longer(ring, sealing: active) }
            }
            let key = try SealingKey(ring.newest, sealing: active)
            try writing { (session, deadline) throws(PostgresError) in
                try StoreRow.add(key.number, key.fingerprint, to: session, until: deadline)
            }
            // Another server may have added its own at the same moment, which then counts.
            try check(ring, try agreement.look(sessions))
            return key
        }
    }

    /// The ring with one more key.
    private static func longer(_ ring: KeyRing, sealing active: Int) throws(StoreError) -> KeyRing {
        guard ring.newest.number == active else {
            throw .refused(
                """
                key \(ring.newest.number) was added before, and waits; have it seal when all servers have it: \
                token-cache keyring rotate
                """)
        }
        guard ring.newest.number < KeyRing.numbers.upperBound else {
            throw .refused("the key ring is at its last number, \(ring.newest.number)")
        }
        do throws(SealingError) {
            return try ring.addingKey(createdAt: Int64(time(nil))).activating(ring.active.number)
        } catch {
            throw .sealing(error)
        }
    }

    /// Refuses a ring with another key than the database's.
    private func check(_ ring: KeyRing, _ row: StoreRow) throws(StoreError) {
        do throws(KeyRingError) {
            try agreement.check(ring, row)
        } catch {
            throw .keyRing(error)
        }
    }

    func useKey(numbered number: Int) async throws(StoreError) -> SealingKey {
        try await onThread { () throws(StoreError) in
            let row = try agreement.look(sessions)
            try check(try agreement.completeFile(), row)
            guard let key = ring.numberedKey(number) else {
                throw .refused(
                    "the key ring \(agreement.file.path) has no key \(number); token-cache keyring list shows those it has"
                )
            }
            let isUsed = try writing { (session, deadline) throws(PostgresError) in
                try StoreRow.use(number, on: session, until: deadline)
            }
            guard isUsed else {
                throw .refused("the database has no key \(number): it was retired, or never added with keyring add")
            }
            try agreement.look(sessions)
            return try SealingKey(key, sealing: number)
        }
    }

    func retireKey(numbered number: Int) async throws(StoreError) {
        try await onThread { () throws(StoreError) in
            let row = try agreement.look(sessions)
            try refuseToRetire(number, row)
            // Otherwise the key would be retired in the database, and then not in the file.
            if ring.numberedKey(number) != nil { try agreement.refuseUnchangeableFile() }
            let isRetired = try sessions.perform(within: Self.scanTime, repeats: true, isLong: true) {
                (session, deadline) throws(PostgresError) in
                try StoreRow.retire(number, on: session, until: deadline)
            }
            guard isRetired else {
                try refuseToRetire(number, try agreement.look(sessions))
                throw .refused("tokens or sessions are still sealed with key \(number); run token-cache keyring rotate")
            }
            guard ring.numberedKey(number) != nil else { return }
            try agreement.change(without: number) { (ring) throws(StoreError) in ring.removingKey(numbered: number) }
        }
    }

    /// Refuses to retire a key that must stay.
    ///
    /// A key that the ring lacks may be retired, because its ring may be lost.
    private func refuseToRetire(_ number: Int, _ row: StoreRow) throws(StoreError) {
        guard ring.numberedKey(number) != nil || row.fingerprints[number] != nil else {
            throw .refused("the key ring has no key \(number); token-cache keyring list shows those it has")
        }
        guard number != row.sealingKey, number != ring.active.number else {
            throw .refused("key \(number) seals; have another one do so first, with token-cache keyring rotate")
        }
        guard number != ring.newest.number else {
            throw .refused("key \(number) is the newest, and the next one would get its number; it has to stay")
        }
    }

    // MARK: - Rekeying

    /// Rows that are read at a time.
    private static let pageCount = 200

    func rekey(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> Rekeying {
        let administrator = PostgresAdministrator(sessions, state, users: users, keyRing: self)
        let total = try await administrator.statistics().tokens
        progress(StoreProgress(done: 0, total: total))
        try await onThread { () throws(StoreError) in _ = try agreement.completeFile() }
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
        throw .refused("the rekeying was interrupted; token-cache keyring rotate goes on with the rest")
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
        case .refused, .library: throw .sealing(error)
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
        for row in rows where row.keyNumber != ring.active.number {
            do throws(SealingError) {
                let opened = try coder.open(row)
                sealed.append((try coder.row(of: opened.session, opened.key), row.keyNumber))
            } catch {
                try throwUnlessUnreadable(error)
                step.unreadable += 1
            }
        }
        guard !sealed.isEmpty else { return step }
        step.rekeyed = sealed.count
        try writing { (session, deadline) throws(PostgresError) in
            try session.transaction(until: deadline) { () throws(PostgresError) in
                let rows = SessionRows(session, until: deadline)
                for (row, former) in sealed { try rows.replaceUser(of: row, sealedWith: former) }
            }
        }
        return step
    }
}
#endif
