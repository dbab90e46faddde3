import CSQLite
import Synchronization
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// The events that a store has reported.
final class Events: Sendable {
    private let list = Mutex<[StoreEvent]>([])
    /// Called when an event comes.
    let tell = Mutex<(@Sendable () -> Void)?>(nil)

    func add(_ event: StoreEvent) {
        list.withLock { $0.append(event) }
        tell.withLock(\.self)?()
    }

    var all: [StoreEvent] { list.withLock(\.self) }
}

extension StoreEvent {
    /// Whether it is an event of SQLite stores whose text contains another one.
    func says(_ text: String) -> Bool {
        if case .own(_, let own) = self { own.contains(text) } else { false }
    }
}

extension StoreOptions {
    /// The standard options with the key ring in a folder, but for what `change` changes.
    init(in directory: String, _ change: (inout StoreOptions) -> Void = { _ in }) {
        self.init(keyRing: KeyRingFile(path: "", credentials: nil, directory: directory))
        // Otherwise a write fails that a busy machine holds up for long.
        queueTime = .seconds(3_600)
        isServing = true
        change(&self)
    }
}

extension Row {
    /// A row that does not open, for `WriterConnection.commit`.
    init(_ key: RowKey, _ value: [UInt8]) {
        self.init(
            key: key, value: value, keyNumber: 0, times: RowTimes(writtenAt: 1, expiresAt: nil), id: [])
    }
}

extension DataDirectory {
    /// Locks a folder, which is made if it is missing.
    static func lock(_ path: String) throws(SQLiteOpenError) -> DataDirectory {
        do throws(DataDirectoryError) {
            return try DataDirectory(path: path, creates: true)
        } catch {
            throw .directory(error)
        }
    }
}

extension SQLiteAdministrator {
    nonisolated func backUp(
        to path: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup { try await backUp(to: path, checks: true, keys: nil, progress) }
}

extension OfflineSQLiteStore {
    convenience init(directory: String, options: StoreOptions) throws(SQLiteOpenError) {
        try self.init(in: try .lock(directory), options: options)
    }

    func restore(_ path: String, _ progress: (StoreProgress) -> Void) throws(StoreError) -> StoreReplacement {
        try restore(path, keepsSessions: false, lacksKeys: false, progress)
    }
}

extension SQLiteStoreProvider {
    init(examining directory: String) {
        self.init(directory: directory, options: StoreOptions(in: directory))
    }
}

extension SQLiteTokenStore {
    /// Opens a store with the standard options, but for what `change` changes.
    convenience init(
        at directory: String, events: Events = Events(), _ change: (inout StoreOptions) -> Void = { _ in }
    ) throws {
        let options = StoreOptions(in: directory) {
            $0.report = { events.add($0) }
            change(&$0)
        }
        try self.init(directory: directory, options: options)
    }

    /// Opens the store of a folder, which is made if it is missing.
    convenience init(directory: String, options: StoreOptions) throws(SQLiteOpenError) {
        try self.init(in: try .lock(directory), options: options)
    }
}

extension SQLiteAdministrator {
    /// Another administrator than the store's own.
    init(_ store: SQLiteTokenStore) {
        self.init(store.open, store.walker, handle: store.administrator.handle)
    }

    nonisolated func store(_ tokens: [(token: Token, writtenAt: Int64?)]) async -> [Result<Void, StoreError>] {
        await handle.store(tokens, keepsNewer: false)
    }

    /// Stores `infoN` under `idN`.
    nonisolated func fill(_ numbers: Range<Int>) async {
        let outcomes = await store(
            numbers.map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), nil) }
        )
        #expect(outcomes.allSatisfy { (try? $0.get()) != nil })
    }

    nonisolated func info(_ id: String) async throws -> String? {
        try await handle.fetch(Array(id.utf8)).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Where tokens lie, by their ids.
    func slots() throws -> [String: Int64] {
        let rows = try OpenedRows(SQLiteConnection(path: store.path, mode: .readOnly), store.state.sealing)
        var slots: [String: Int64] = [:]
        while case .token(let row, let token) = try rows.next() {
            slots[String(decoding: try token.get().id, as: UTF8.self)] = row.slot
        }
        return slots
    }
}

extension WriterConnection {
    /// Stores rows, whatever keys they were made with.
    func commit(_ rows: [Row]) throws(SQLiteError) -> [Result<Void, StoreError>] {
        try transaction { () throws(SQLiteError) in
            try checkLimits()
            var outcomes: [Result<Void, StoreError>] = []
            for row in rows {
                do throws(SQLiteError) {
                    outcomes.append(try store(row).map { _ in })
                } catch {
                    outcomes.append(.failure(.write(StoreFault(error))))
                }
            }
            return outcomes
        }
    }

    /// Removes the rows of some keys.
    ///
    /// - Returns: For each key whether there was one.
    func remove(_ keys: [RowKey]) throws(SQLiteError) -> [Bool] {
        try transaction { () throws(SQLiteError) in
            let removed = try keys.map { (key) throws(SQLiteError) in try table.remove(key) }
            noteRemoved(removed.count { $0 })
            return removed
        }
    }
}

extension SQLiteTokenStore {
    /// Runs a closure on the writer's thread; its errors are SQLite's.
    @discardableResult
    func perform<Value: Sendable>(
        _ body: @escaping @Sendable (WriterConnection) throws -> Value
    ) async throws -> Value {
        try await writerThread.perform { (writer) throws(SQLiteError) in try typed { try body(writer) } }
    }
}

/// Runs a closure whose errors are SQLite's, which the compiler does not find out by itself.
private func typed<Value>(_ body: () throws -> Value) throws(SQLiteError) -> Value {
    do {
        return try body()
    } catch {
        throw error as? SQLiteError ?? SQLiteError(code: SQLITE_ERROR, message: "\(error)")
    }
}

/// A writer's database without its thread, so that the test decides when the files are checked.
final class WriterHarness {
    /// Without that of a new key ring.
    let events = Events()
    let opener: StoreOpener
    let state: StoreState
    let database: RecoveringDatabase

    /// - Parameters:
    ///   - directory: The data folder.
    ///   - change: Changes the standard options.
    ///   - whenOpened: Called before the WAL of an earlier run is checkpointed.
    init(
        _ directory: String, _ change: (inout StoreOptions) -> Void = { _ in },
        whenOpened: (WriterConnection) throws -> Void = { _ in }
    ) throws {
        let (folder, events) = (try DataDirectory.lock(directory), events)
        let options = StoreOptions(in: directory) {
            $0.report = { event in if case .madeKeyRing = event {} else { events.add(event) } }
            change(&$0)
        }
        opener = StoreOpener(directory: directory, database: directory + "/tokens.db", options: options)
        let opened = try opener.open()
        state = StoreState(sealing: opened.sealing, retention: Retention())
        try whenOpened(opened.writer)
        database = RecoveringDatabase(opened, opener, state: state, directory: folder)
    }

    /// Stores a token of so many bytes.
    func store(_ id: String, bytes: Int) throws {
        var coder = RowCoder(state.sealing)
        let token = Token(id: Array(id.utf8), info: [UInt8](repeating: 65, count: bytes))
        for outcome in write([.store(try coder.row(of: token))]) { _ = try outcome.get() }
    }

    /// Makes changes as one group; returns their outcomes.
    func write(_ changes: [Change]) -> [Result<ChangeOutcome, StoreError>] {
        let pending = changes.map { PendingChange($0, 0, .none) }
        _ = database.write(pending)
        return pending.compactMap(\.outcome)
    }

    /// Runs a closure with the writer; its errors are SQLite's.
    @discardableResult
    func perform<Value>(_ body: (WriterConnection) throws -> Value) throws -> Value {
        try database.perform { (writer) throws(SQLiteError) in try typed { try body(writer) } }
    }

    /// Has a change fail, as on a disk that is broken or full.
    func failChange(_ code: Int32 = SQLITE_IOERR) {
        #expect(throws: StoreError.self) { try perform { _ in throw SQLiteError(code: code, message: "a fault") } }
    }

    var recoveries: Int { events.all.count { if case .writesRecovered = $0 { true } else { false } } }
}
