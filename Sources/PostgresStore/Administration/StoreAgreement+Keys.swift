#if PostgreSQL
import Glibc
import System
import TokenStore

/// Changes the key ring that the servers of a store share: a key is added to the file of one server, the file is copied to the
/// others, and then the key is made the one that seals.
extension StoreAgreement: KeyRingAdministrator {
    /// How long it may take to find rows that a key has sealed, as PostgreSQL reads the whole tables.
    private static let scanTime = Duration.seconds(6 * 3_600)

    /// Nil also until the store is open, as there is no ring in use yet.
    var fileFault: KeyRingError? { state.refusalOfOperators == nil ? state.sealing.fault(of: file) : nil }

    func keys() async throws(StoreError) -> [SealingKey] {
        try await connections.onThread { [self] () throws(StoreError) in
            let row = try look()
            return ring.keys.map { SealingKey($0, sealing: row.sealingKey ?? $0.number) }
        }
    }

    /// Nil: `DatabaseInspector` finds them, without a server.
    func missingKeys() -> [Int]? { nil }

    // MARK: - Changes

    func addKey() async throws(StoreError) -> SealingKey {
        try await connections.onThread { [self] () throws(StoreError) in
            try file.withLock(or: StoreError.keyRing, addKeyNow)
        }
    }

    private func addKeyNow() throws(StoreError) -> SealingKey {
        let row = try look()
        if let fault = mismatch(try completeFile(), row) { throw .keyRing(fault) }
        // Otherwise the new key could get the number of another key in the database.
        if let missing = row.fingerprints.keys.filter({ ring.numberedKey($0) == nil }).max() {
            if missing == row.sealingKey, let sealingRefusal { throw sealingRefusal }
            throw addedElsewhere(missing)
        }
        let active = row.sealingKey ?? ring.active.number
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
            let isAdded = try connections.perform { (connection) throws(PostgresError) in
                try StoreRow.add(key.number, key.fingerprint, to: connection)
            }
            guard isAdded else { throw addedElsewhere(key.number) }
            return new
        }
        return SealingKey(ring.newest, sealing: active)
    }

    /// Why this server may seal nothing, such as that it lacks the key that seals; nil if it may.
    private var sealingRefusal: StoreError? {
        if case .refused(let reason)? = state.sealing.refusal { .refused(reason) } else { nil }
    }

    private func addedElsewhere(_ number: Int) -> StoreError {
        .refused(
            """
            key \(number) was added on another server, and the key ring \(file.path) lacks it; copy the key ring from there \
            first. If no server has the key, remove it with token-cache keyring retire \(number)
            """)
    }

    func useKey(numbered number: Int) async throws(StoreError) -> SealingKey {
        let (key, isNew) = try await connections.onThread { [self] () throws(StoreError) in
            let row = try look()
            if let fault = mismatch(try completeFile(), row) { throw .keyRing(fault) }
            guard let key = ring.numberedKey(number) else {
                throw .refused(
                    "the key ring \(file.path) has no key \(number); token-cache keyring list shows those it has"
                )
            }
            let isUsed = try connections.perform { (connection) throws(PostgresError) in
                try StoreRow.use(number, on: connection)
            }
            guard isUsed else {
                throw sealingRefusal
                    ?? .refused(
                        """
                        the database has no key \(number): it was retired, or never added with keyring add; run token-cache \
                        keyring add
                        """
                    )
            }
            try look()
            return (SealingKey(key, sealing: number), row.sealingKey != number)
        }
        // Until the other servers have looked, they seal with the former key.
        if isNew { try? await Task.sleep(for: interval * 1.25) }
        return key
    }

    func retireKey(numbered number: Int) async throws(StoreError) {
        try await connections.onThread { [self] () throws(StoreError) in
            let row = try look()
            try refuseToRetire(number, row)
            // Done first: if the file cannot be changed, this fails, and the key is not retired in the database only.
            let kept = try ring.numberedKey(number).flatMap { (key) throws(StoreError) in
                try state.sealing.keepFile(file, with: key)
            }
            if let refusal = try retireInDatabase(number) {
                // The kept name is one of the file in use; the next change must not find that file under it.
                if let kept { _ = unsafe unlink(kept) }
                try refuseToRetire(number, try look())
                throw refusal
            }
            guard ring.numberedKey(number) != nil else { return }
            try file.withLock(or: StoreError.keyRing) { () throws(StoreError) in
                try change { (ring) throws(StoreError) in ring.removingKey(numbered: number) }
            }
        }
    }

    /// Lets no further row be sealed with a key, unless it opens one.
    ///
    /// The database refuses to retire a key that a row has, whether or not the row opens. So damaged rows get another number first,
    /// which shows that they had this one.
    ///
    /// - Returns: Why the key has to stay, if a row needs it or may need it.
    private func retireInDatabase(_ number: Int) throws(StoreError) -> StoreError? {
        try connections.perform(within: Self.scanTime) { (connection) throws(PostgresError) in
            do throws(PostgresError) {
                if try retire(number, on: connection) { return nil }
                return .refused(
                    "tokens or sessions are still sealed with key \(number); run token-cache keyring rotate")
            } catch {
                guard error.isOfDamage else { throw error }
                return .refused("key \(number) stays, as rows that cannot be read may be sealed with it: \(error)")
            }
        }
    }

    private func retire(_ number: Int, on connection: BlockingConnection) throws(PostgresError) -> Bool {
        if try StoreRow.retire(number, on: connection) { return true }
        _ = try StoreRow.add(Statement.damagedKeyNumber(number), "", to: connection)
        var coder = RowCoder(state.sealing)
        var place: RowPlace? = try connection.firstPlace()
        while let start = place {
            let (rows, next) = try connection.rows(after: start, pages: Walk.Stride.long.rawValue, keyNumber: number)
            guard rows.allSatisfy({ $0.isDamaged(&coder) }) else { return false }
            let kept = rows.map { $0.resealed(keyNumber: Statement.damagedKeyNumber(number)) }
            _ = try connection.replace(kept, in: start.table)
            place = next
        }
        return try StoreRow.retire(number, on: connection)
    }

    /// Refuses to retire a key that must stay.
    ///
    /// A key that the ring lacks may be retired, as the ring that had it may be lost.
    private func refuseToRetire(_ number: Int, _ row: StoreRow) throws(StoreError) {
        guard ring.numberedKey(number) != nil || row.fingerprints[number] != nil else {
            throw .refused("the key ring has no key \(number); token-cache keyring list shows those it has")
        }
        guard number != row.sealingKey, number != ring.active.number else {
            throw sealingRefusal
                ?? .refused("key \(number) seals; have another one do so first, with token-cache keyring rotate")
        }
        guard number != ring.newest.number else {
            throw .refused("key \(number) is the newest, and the next one would get its number; it has to stay")
        }
    }
}
#endif
