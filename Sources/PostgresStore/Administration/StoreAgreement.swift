#if PostgreSQL
import Cryptography
import Glibc
import Synchronization
import System
import TokenStore

/// Makes the servers of a database agree on the key ring, of which each has a file, and on the key that seals.
///
/// The first server that starts writes both into the database, and every server looks there every few seconds. A server that
/// disagrees, or lacks the key that seals, reports this, is not ready and seals nothing, until an operator has mended it.
///
/// Any thread; reads and writes the file.
final class StoreAgreement: Sendable {
    private let options: StoreOptions
    let state: PostgresState
    let connections: PrimaryConnections
    /// The time between two looks, on each server.
    let interval: Duration
    /// Lets one look or change of the file run at a time.
    private let turn = Semaphore(value: 1)

    /// How long a look at the database may take, including the search for a new primary.
    private static let lookTime = Duration.seconds(4)

    /// - Parameters:
    ///   - options: Say where the key ring is.
    ///   - state: Gets the keys.
    ///   - connections: Used one at a time.
    ///   - interval: The time between two looks, after which a new key seals on all servers.
    init(
        _ options: StoreOptions, _ state: PostgresState, _ connections: PrimaryConnections,
        lookingEvery interval: Duration
    ) {
        (self.options, self.state, self.connections, self.interval) = (options, state, connections, interval)
    }

    var file: KeyRingFile { options.keyRing }

    /// The ring in use.
    var ring: KeyRing { state.sealing.ring }

    // MARK: - Starting

    /// Opens the store, so that clients and operators may use the database: agrees with the servers that have started before, or
    /// decides if this is the first one.
    ///
    /// No key ring is made before the database has said that it has none.
    ///
    /// - Parameter limit: How long a step may take, including the search for the primary.
    func open(within limit: Duration) throws(StoreOpenError) {
        var row = try connections.performOpening(within: limit, check)
        guard row.isDecided || options.makesKeyRing else {
            throw .store(
                StoreFault("the database has no key ring, as no server used it yet; start one, or correct store.url"))
        }
        var chosen = try choose(row)
        if !row.isDecided {
            // The newest key seals, and rows may be sealed with every key.
            var wanted = row
            (wanted.keyRing, wanted.sealingKey) = (chosen.identity, chosen.ring.newest.number)
            wanted.fingerprints = chosen.ring.fingerprints()
            try decide(wanted, within: limit)
            row = try connections.performOpening(within: limit, check)
            // Another server may have been first. If that one uses the same file, it may even have decided for the ring made here.
            if row.keyRing != wanted.keyRing {
                if chosen.isNew { _ = unsafe unlink(file.path) }
                chosen = try choose(row)
            }
        }
        if chosen.isNew { state.report(.madeKeyRing(path: file.path)) }
        let ring = chosen.ring
        if let group = file.volumeGroup { state.report(.keyRingOpenToGroup(path: file.path, group: group)) }
        if let fault = mismatch(ring, row) { throw .keyRing(fault) }
        let active = row.sealingKey.flatMap(ring.numberedKey)
        state.sealing.replace(active.map { ring.activating($0.number) } ?? ring)
        judge(.success(ring), row)
        // Of a new store, the database's clock decides whether this machine's is right.
        let database = connections.facts.map { Int64(time(nil)) + $0.clockDifference / 1_000_000 }
        state.clock.use { $0 = ExpiryClock(saved: row.lookedAt ?? database, at: .now) }
        state.noteOpened()
    }

    private func check(_ connection: BlockingConnection) throws(PostgresError) -> StoreRow {
        try Schema.check(connection, fills: connections.options.fillsStore)
    }

    private func choose(_ row: StoreRow) throws(StoreOpenError) -> KeyRingChoice {
        try file.ring(fitting: row.keyRing ?? [], isEmpty: !row.isDecided, of: "the database")
    }

    /// Writes what this server has decided, unless another server, or an earlier attempt of this one, was first.
    private func decide(_ wanted: StoreRow, within limit: Duration) throws(StoreOpenError) {
        try connections.performOpening(within: limit) { (connection) throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                // Lets one server decide at a time.
                try connection.run("SELECT 1 FROM store WHERE one = 1 FOR UPDATE")
                guard let present = try StoreRow.read(from: connection), !present.isDecided else { return }
                try wanted.write(to: connection)
            }
        }
    }

    // MARK: - Looking

    /// Looks at the file and at the database, and takes over what has changed there.
    ///
    /// - Returns: The row in the database.
    @discardableResult
    func look() throws(StoreError) -> StoreRow {
        turn.wait()
        defer { turn.signal() }
        state.hasRefusedKey.store(false, ordering: .relaxed)
        // Read before the database: a key is retired there first, and would otherwise seem to be missing from the file.
        let present = ring
        let found = Result { () throws(KeyRingError) in try file.load(like: present) }
        let row = try connections.perform(or: StoreError.read, within: Self.lookTime, StoreRow.read)
        let fault = judge(found, row)
        guard let row, row.schemaVersion == Schema.version else { throw .refused(fault ?? "") }
        return row
    }

    /// Makes this server seal as the database says, or not at all; reports when that begins and when it is over.
    ///
    /// - Parameters:
    ///   - found: The ring in the file.
    ///   - row: Nil if the tables are gone.
    /// - Returns: Why nothing may be sealed; nil if it may.
    @discardableResult
    private func judge(_ found: Result<KeyRing, KeyRingError>, _ row: StoreRow?) -> String? {
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

    private func disagreement(_ found: Result<KeyRing, KeyRingError>, _ row: StoreRow?) -> String? {
        guard let row else {
            return """
                this server's role finds no tables of token-cache in the database any more: set its search_path to their schema, and \
                grant it USAGE there or, if the tables are gone, restore them from a backup
                """
        }
        if let fault = Schema.fault(of: row, fills: connections.options.fillsStore) { return fault.text }
        let present = ring
        guard row.keyRing == present.identity() else {
            return """
                the database is now sealed with another key ring, or not at all: it was changed or replaced. Stop the servers, and \
                restore the database or the key ring
                """
        }
        let keys = keys(found, present, row)
        let numbers = keys.map(\.number)
        let missing = row.fingerprints.keys.filter { !numbers.contains($0) }.sorted()
        state.count { $0.remote.missingKeys = missing.count }
        let active = row.sealingKey.flatMap { numbers.contains($0) ? $0 : nil }
        let former = numbers.contains(present.active.number) ? present.active.number : nil
        let new = KeyRing(index: present.index, keys: keys, active: active ?? former)
        // Compared before the ring is used: with a wrong key, rows would seem to have been tampered with.
        if let fault = mismatch(new, row) { return "\(fault); nothing can be stored here until then" }
        let isSame = keys.elementsEqual(present.keys) { $0.number == $1.number && $0.key.hasBytes(of: $1.key) }
        if !isSame || new.active.number != present.active.number {
            state.sealing.replace(new)
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
            ring from a server that has the key; this one takes it over without a restart. If no server has it any more, \
            token-cache keyring rotate has another key seal, and what that one has sealed is lost
            """
    }

    /// The keys to use: those of the file, or the present ones if the file lacks one that rows may be sealed with.
    private func keys(
        _ found: Result<KeyRing, KeyRingError>, _ present: KeyRing, _ row: StoreRow
    ) -> [KeyRing.NumberedKey] {
        switch found {
        case .failure(let error):
            state.sayOnce(.warning, "\(error); the ring that was read before stays in use")
            return present.keys
        case .success(let new):
            let lost = present.keys.first { key in
                new.numberedKey(key.number) == nil && row.fingerprints[key.number] != nil
            }
            guard let lost else { return new.keys }
            state.sayOnce(.warning, "\(KeyRingError.lacksKey(number: lost.number, path: file.path))")
            return present.keys
        }
    }

    /// Says which key of the ring differs from the database's key of that number; nil if none does.
    func mismatch(_ ring: KeyRing, _ row: StoreRow) -> KeyRingError? {
        for (number, own) in ring.fingerprints() {
            guard let stores = row.fingerprints[number], stores != own else { continue }
            return .otherKey(number: number, path: file.path, own: own, stores: stores)
        }
        return nil
    }

    // MARK: - The file

    /// Reads the ring in the file; fails if the file lacks a key in use: after a restart, this server could not read what that key
    /// has sealed.
    @discardableResult
    func completeFile() throws(StoreError) -> KeyRing { try state.sealing.ring(in: file) }

    /// Changes the ring in the file, and the one in use; the caller has locked its folder, as several commands may do so at once.
    func change(_ body: (KeyRing) throws(StoreError) -> KeyRing) throws(StoreError) {
        turn.wait()
        defer { turn.signal() }
        try state.sealing.save(try body(try completeFile()), to: file)
    }
}

extension KeyRing {
    /// The keys' fingerprints, by number.
    fileprivate func fingerprints() -> [Int: String] {
        Dictionary(uniqueKeysWithValues: keys.map { ($0.number, $0.fingerprint()) })
    }
}
#endif
