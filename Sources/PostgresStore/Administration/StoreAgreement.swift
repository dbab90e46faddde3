#if PostgreSQL
internal import Cryptography
internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// What the servers of a database have agreed on: which key ring they have, each in a file of its own, and which key seals.
///
/// The first server that starts writes it into the database, and every server looks every few seconds. One that does not agree, or
/// lacks the key that seals, says so, is not ready and seals nothing; it goes on when the operator has mended that.
///
/// Any thread; reads and writes the file.
final class StoreAgreement: Sendable {
    private let options: StoreOptions
    let state: PostgresState
    let connections: PrimaryConnections
    let longWork: PrimaryConnections
    /// One look or change of the file at a time.
    private let turn = Semaphore(value: 1)

    /// How long the statements of a look may take, and a new primary may be looked for.
    private static let lookTime = Duration.seconds(4)

    /// - Parameters:
    ///   - options: Name the key ring.
    ///   - state: Gets the keys.
    ///   - connections: Used for steps that take milliseconds.
    ///   - longWork: Used for what takes hours.
    init(
        _ options: StoreOptions, _ state: PostgresState, _ connections: PrimaryConnections,
        _ longWork: PrimaryConnections
    ) {
        (self.options, self.state, self.connections, self.longWork) = (options, state, connections, longWork)
    }

    var file: KeyRingFile { options.keyRing }

    /// The keys in use; nil in the clear.
    var ring: KeyRing? { state.sealing.ring }

    // MARK: - Starting

    /// Opens the store: agrees with the servers that have started before, or decides if there were none.
    ///
    /// Only then may clients and operators use the database. No key ring is made before the database has said that there is none.
    ///
    /// - Parameter limit: How long a step may take, the search for the primary included.
    func open(within limit: Duration) throws(StoreOpenError) {
        var row = try read(within: limit)
        var chosen = try choose(row)
        if !row.isDecided {
            let wanted = try decision(chosen, row)
            try decide(wanted, within: limit)
            row = try read(within: limit)
            // Another server may have been first, also with the ring that was made here, if its file is the same.
            if row.keyRing != wanted.keyRing || row.isSealed != wanted.isSealed {
                if chosen.isNew { _ = unsafe unlink(file.path) }
                chosen = try choose(row)
            }
        }
        if chosen.isNew { state.report(.madeKeyRing(path: file.path)) }
        if let ring = chosen.ring {
            if let group = file.volumeGroup { state.report(.keyRingOpenToGroup(path: file.path, group: group)) }
            do throws(KeyRingError) {
                try check(ring, row)
            } catch {
                throw .keyRing(error)
            }
            let active = row.sealingKey.flatMap(ring.numberedKey)
            state.sealing.replace(.sealed(active.map { ring.activating($0.number) } ?? ring))
        }
        judge(nil, row)
        state.clock.use { $0 = ExpiryClock(saved: row.lookedAt, at: .now) }
        state.noteOpened()
    }

    private func read(within limit: Duration) throws(StoreOpenError) -> StoreRow {
        try connections.performOpening(within: limit) { (connection) throws(PostgresError) in
            try Schema.check(connection)
        }
    }

    private func choose(_ row: StoreRow) throws(StoreOpenError) -> KeyRingChoice {
        do throws(StoreOpenError) {
            return try file.ring(
                fitting: row.keyRing ?? [], isEmpty: !row.isDecided, isSealed: options.isSealed, of: "")
        } catch {
            switch error {
            case .notSealed:
                throw .store(
                    StoreFault(
                        """
                        the database is for tokens in the clear, and sealing is on; set sealing.enabled to off, or export the tokens and \
                        import them into a new database
                        """))
            case .sealed:
                throw .store(
                    StoreFault("the tokens in the database are sealed, and sealing is off; set sealing.enabled to on"))
            default: throw error
            }
        }
    }

    /// The row that the first server writes: the newest key seals, and rows may be sealed with all keys.
    private func decision(_ chosen: KeyRingChoice, _ row: StoreRow) throws(StoreOpenError) -> StoreRow {
        var row = row
        row.isSealed = chosen.ring != nil
        guard let ring = chosen.ring else { return row }
        (row.keyRing, row.sealingKey) = (chosen.identity, ring.newest.number)
        do throws(KeyRingError) {
            row.fingerprints = try ring.fingerprints()
        } catch {
            throw .keyRing(error)
        }
        return row
    }

    /// Writes what this server has decided, unless another one, or an earlier attempt, was first.
    private func decide(_ wanted: StoreRow, within limit: Duration) throws(StoreOpenError) {
        try connections.performOpening(within: limit) { (connection) throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                // One server after the other.
                try connection.run("SELECT 1 FROM store WHERE one = 1 FOR UPDATE")
                guard let present = try StoreRow.read(from: connection), !present.isDecided else { return }
                try wanted.write(to: connection)
            }
        }
    }

    // MARK: - Looking

    /// Looks at the file and at the database, and takes over what has changed there.
    ///
    /// - Returns: What the database has.
    @discardableResult
    func look() throws(StoreError) -> StoreRow {
        turn.wait()
        defer { turn.signal() }
        state.hasRefusedKey.store(false, ordering: .relaxed)
        // Before the database is: `keyring retire` deletes a key there first, and otherwise it would seem to be missing in the file.
        let found = ring.map(load)
        let row = try connections.perform(or: StoreError.read, within: Self.lookTime) {
            (connection) throws(PostgresError) in try StoreRow.read(from: connection)
        }
        let fault = judge(found, row)
        guard let row, row.schemaVersion == Schema.version else { throw .refused(fault ?? "") }
        return row
    }

    /// Has rows be sealed as the database says, or not at all.
    ///
    /// - Parameters:
    ///   - found: What is in the file; nil if it was not read.
    ///   - row: Nil if the tables are gone.
    /// - Returns: Why nothing may be sealed.
    @discardableResult
    private func judge(_ found: Result<KeyRing, KeyRingError>?, _ row: StoreRow?) -> String? {
        let fault = disagreement(found, row)
        let former = state.sealing.refusal
        state.sealing.refuse(fault)
        if let fault {
            if former != .refused(fault) { state.say(.fault, fault) }
        } else if former != nil {
            state.say(.note, "this server agrees with the database again, and stores tokens")
        }
        return fault
    }

    private func disagreement(_ found: Result<KeyRing, KeyRingError>?, _ row: StoreRow?) -> String? {
        guard let row else { return "the tables of token-cache are gone from the database; restore them from a backup" }
        if let fault = Schema.fault(of: row) { return fault }
        let present = ring
        guard row.isSealed == (present != nil), row.keyRing == present.flatMap({ try? $0.identity() }) else {
            return """
                the database is sealed with another key ring now, or not at all: somebody has changed or replaced it. Stop the \
                servers, and restore the database or the key ring
                """
        }
        guard let present else { return nil }
        let keys = keys(found, present, row)
        let numbers = keys.map(\.number)
        let missing = row.fingerprints.keys.filter { !numbers.contains($0) }.sorted()
        state.count { $0.remote.missingKeys = missing.count }
        let active = row.sealingKey.flatMap { numbers.contains($0) ? $0 : nil }
        let former = numbers.contains(present.active.number) ? present.active.number : nil
        let new = KeyRing(index: present.index, keys: keys, active: active ?? former)
        do throws(KeyRingError) {
            // Before it is used: a wrong key would have rows be taken for tampered ones.
            try check(new, row)
        } catch {
            return "\(error); nothing can be stored here until then"
        }
        let isSame = keys.elementsEqual(present.keys) { $0.number == $1.number && $0.key.hasBytes(of: $1.key) }
        if !isSame || new.active.number != present.active.number {
            state.sealing.replace(.sealed(new))
            if let active, active != present.active.number { state.say(.note, "key \(active) seals from now on") }
        }
        for number in missing where number != row.sealingKey {
            state.sayOnce(
                .warning,
                """
                the key ring \(file.path) lacks key \(number) of the database; tokens that it has sealed cannot be read here \
                (50002), and all others are served. Copy the key ring from a server that has the key; this one takes it over \
                without a restart
                """)
        }
        guard active == nil else { return nil }
        return """
            the key ring \(file.path) lacks key \(row.sealingKey ?? 0), which seals, so nothing can be stored here. Copy the key \
            ring from a server that has the key; this one takes it over without a restart
            """
    }

    /// The keys to use: those of the file, or the present ones if it lacks one of them that rows may be sealed with.
    private func keys(
        _ found: Result<KeyRing, KeyRingError>?, _ present: KeyRing, _ row: StoreRow
    ) -> [KeyRing.NumberedKey] {
        switch found {
        case nil: return present.keys
        case .failure(let error)?:
            state.sayOnce(.warning, "\(error); the ring that was read before stays in use")
            return present.keys
        case .success(let new)?:
            let lost = present.keys.first { key in
                new.numberedKey(key.number) == nil && row.fingerprints[key.number] != nil
            }
            guard let lost else { return new.keys }
            state.sayOnce(.warning, "\(KeyRingError.lacksKey(number: lost.number, path: file.path))")
            return present.keys
        }
    }

    /// Makes sure that no key of a ring is another one than the database's of that number.
    func check(_ ring: KeyRing, _ row: StoreRow) throws(KeyRingError) {
        for (number, own) in try ring.fingerprints() {
            guard let stores = row.fingerprints[number], stores != own else { continue }
            throw .otherKey(number: number, path: file.path, own: own, stores: stores)
        }
    }

    // MARK: - The file

    /// The ring in the file; fails if it is another one than the present ring.
    ///
    /// Its keys are compared with those of the database, see `check`.
    private func load(_ present: KeyRing) -> Result<KeyRing, KeyRingError> {
        do throws(KeyRingError) {
            return .success(try file.load(like: present))
        } catch {
            return .failure(error)
        }
    }

    /// The ring in the file; fails if that lacks a key in use, with which nothing more must be sealed then: after a restart, this
    /// server could not read it.
    @discardableResult
    func completeFile() throws(StoreError) -> KeyRing { try state.sealing.ring(in: file) }

    /// Changes the ring in the file, and the one in use.
    func change(_ body: (KeyRing) throws(StoreError) -> KeyRing) throws(StoreError) {
        turn.wait()
        defer { turn.signal() }
        try state.sealing.save(try body(try completeFile()), to: file)
    }
}

extension KeyRing {
    /// What tells each key from another one of its number.
    fileprivate func fingerprints() throws(KeyRingError) -> [Int: String] {
        var all: [Int: String] = [:]
        for key in keys { all[key.number] = try key.fingerprint() }
        return all
    }
}
#endif
