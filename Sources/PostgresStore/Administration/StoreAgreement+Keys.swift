#if PostgreSQL
import Glibc
import System
import TokenStore

/// Changes the key ring that the servers of a store share: a key is added to the file of one server, the file is copied to the
/// others, and then the key is made the one that seals.
extension StoreAgreement: KeyRingAdministrator {
    /// How long it may take to find rows that a key has sealed, as PostgreSQL reads the whole tables.
    private static let scanTime = Duration.seconds(6 * 3_600)

    private var sealedRing: KeyRing {
        guard let ring else { preconditionFailure("the store is sealed") }
        return ring
    }

    private func perform<Value>(
        _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        try connections.perform(within: PostgresAdministrator.stepTime, body)
    }

    var fileFault: KeyRingError? { state.sealing.fault(of: file) }

    func keys() async throws(StoreError) -> [SealingKey] {
        try await connections.onThread { [self] () throws(StoreError) in
            let row = try look()
            return sealedRing.keys.map { SealingKey($0, sealing: row.sealingKey ?? $0.number) }
        }
    }

    /// Nil: `DatabaseInspector` finds them, without a server.
    func missingKeys() -> [Int]? { nil }

    // MARK: - Changes

    func addKey() async throws(StoreError) -> SealingKey {
        try await connections.onThread { [self] () throws(StoreError) in
            try FileReplacement.withLock(onFolderOf: file.path, addKeyNow)
        }
    }

    private func addKeyNow() throws(StoreError) -> SealingKey {
        let row = try look()
        try checkKeys(try completeFile(), row)
        // Otherwise the new key could get the number of another key in the database.
        if let missing = row.fingerprints.keys.filter({ sealedRing.numberedKey($0) == nil }).max() {
            throw addedElsewhere(missing)
        }
        let active = row.sealingKey ?? sealedRing.active.number
        if let newest = row.fingerprints.keys.max(), newest != active {
            throw .refused(
                "key \(newest) was added before, and waits; when all servers have it, run token-cache keyring rotate"
            )
        }
        try change { (ring) throws(StoreError) in
            // Fails if the file cannot be changed, before the database has a key that is in no file.
            try state.sealing.save(ring, to: file)
            // Never a key that is in the file only: it may have been retired on another server since.
            let new = try ring.addingKey(createdAt: Int64(time(nil))).activating(ring.active.number)
            let key = SealingKey(new.newest, sealing: active)
            // First the database, where only one server can add a key of this number: with another one in its file, a
            // server could store nothing.
            let isAdded = try perform { (connection) throws(PostgresError) in
                try StoreRow.add(key.number, key.fingerprint, to: connection)
            }
            guard isAdded else { throw addedElsewhere(key.number) }
            return new
        }
        return SealingKey(sealedRing.newest, sealing: active)
    }

    private func addedElsewhere(_ number: Int) -> StoreError {
        .refused(
            """
            key \(number) was added on another server, and the key ring \(file.path) lacks it; copy the key ring from there \
            first. If no server has the key, remove it with token-cache keyring retire \(number)
            """)
    }

    /// Like `check`, with the error of an administrator's call.
    private func checkKeys(_ ring: KeyRing, _ row: StoreRow) throws(StoreError) {
        do throws(KeyRingError) {
            try check(ring, row)
        } catch {
            throw .keyRing(error)
        }
    }

    func useKey(numbered number: Int) async throws(StoreError) -> SealingKey {
        try await connections.onThread { [self] () throws(StoreError) in
            let row = try look()
            try checkKeys(try completeFile(), row)
            guard let key = sealedRing.numberedKey(number) else {
                throw .refused(
                    "the key ring \(file.path) has no key \(number); token-cache keyring list shows those it has"
                )
            }
            let isUsed = try perform { (connection) throws(PostgresError) in try StoreRow.use(number, on: connection) }
            guard isUsed else {
                throw .refused(
                    """
                    the database has no key \(number): it was retired, or never added with keyring add; run token-cache keyring add
                    """
                )
            }
            try look()
            return SealingKey(key, sealing: number)
        }
    }

    func retireKey(numbered number: Int) async throws(StoreError) {
        try await connections.onThread { [self] () throws(StoreError) in
            let row = try look()
            try refuseToRetire(number, row)
            // Done first: if the file cannot be changed, this fails, and the key is not retired in the database only.
            let kept = try sealedRing.numberedKey(number).flatMap { (key) throws(StoreError) in
                try state.sealing.keepFile(file, with: key)
            }
            let isRetired = try longWork.perform(within: Self.scanTime) { (connection) throws(PostgresError) in
                try StoreRow.retire(number, on: connection)
            }
            guard isRetired else {
                // The kept name is one of the file in use; the next change must not find that file under it.
                if let kept { _ = unsafe unlink(kept) }
                try refuseToRetire(number, try look())
                throw .refused("tokens or sessions are still sealed with key \(number); run token-cache keyring rotate")
            }
            guard sealedRing.numberedKey(number) != nil else { return }
            try FileReplacement.withLock(onFolderOf: file.path) { () throws(StoreError) in
                try change { (ring) throws(StoreError) in ring.removingKey(numbered: number) }
            }
        }
    }

    /// Refuses to retire a key that must stay.
    ///
    /// A key that the ring lacks may be retired, as the ring that had it may be lost.
    private func refuseToRetire(_ number: Int, _ row: StoreRow) throws(StoreError) {
        guard sealedRing.numberedKey(number) != nil || row.fingerprints[number] != nil else {
            throw .refused("the key ring has no key \(number); token-cache keyring list shows those it has")
        }
        guard number != row.sealingKey, number != sealedRing.active.number else {
            throw .refused("key \(number) seals; have another one do so first, with token-cache keyring rotate")
        }
        guard number != sealedRing.newest.number else {
            throw .refused("key \(number) is the newest, and the next one would get its number; it has to stay")
        }
    }

    // MARK: - Rekeying

    /// How many rows are read at a time.
    private static let pageCount = 200

    func rekey(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> Rekeying {
        let (total, _) = try await connections.onThread { [self] () throws(StoreError) in
            let total = try perform { (connection) throws(PostgresError) in try connection.tokenEstimate().tokens }
            return (total, try completeFile())
        }
        progress(StoreProgress(done: 0, total: total))
        var result = Rekeying()
        try await result.run(from: RowPosition(), of: total, telling: progress) { (start) async throws(StoreError) in
            try await connections.onThread { [self] () throws(StoreError) in try rekey(from: start) }
        }
        return result
    }

    private typealias Step = RekeyingStep<RowPosition>

    private func rekey(from start: RowPosition) throws(StoreError) -> Step {
        let page = try perform { (connection) throws(PostgresError) in
            try connection.page(from: start, limit: Self.pageCount)
        }
        var step = Step(next: page.next)
        step.seen = start.areSessions ? 0 : page.rows.count
        var coder = RowCoder(state.sealing)
        var tokens: [(row: Row, version: TokenVersion)] = []
        var sessions: [(row: SessionRow, former: Int)] = []
        let active = sealedRing.active.number
        for row in page.rows where row.keyNumber != active {
            do throws(SealingError) {
                switch try row.opened(&coder) {
                case .token(let token, let times, let version):
                    tokens.append((try coder.row(of: token, times), version))
                case .session(let opened, _):
                    sessions.append((try coder.row(of: opened.session, opened.key), row.keyNumber))
                }
            } catch {
                switch error {
                // Every row would fail for the same reason.
                case .refused: throw .sealing(error)
                case .missingKey, .tampered, .malformed, .misplaced: step.unreadable += 1
                }
            }
        }
        step.rekeyed = tokens.count
        guard !tokens.isEmpty || !sessions.isEmpty else { return step }
        try perform { (connection) throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                if !tokens.isEmpty { try connection.replace(tokens) }
                try connection.replace(sessions)
            }
        }
        return step
    }
}
#endif
