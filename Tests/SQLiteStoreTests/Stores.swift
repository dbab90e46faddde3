import Synchronization
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// What a store has reported.
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
    /// Whether it is one of SQLite's own with a text.
    func says(_ text: String) -> Bool {
        if case .own(let notice) = self { notice.text.contains(text) } else { false }
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

extension OfflineSQLiteStore {
    convenience init(
        directory: String, options: StoreOptions, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(SQLiteOpenError) {
        try self.init(in: try .lock(directory), options: options, report: report)
    }

    func restore(_ path: String, _ progress: (StoreProgress) -> Void) throws(StoreError) -> StoreReplacement {
        try restore(path, keepsSessions: false, progress)
    }
}

extension SQLiteStoreProvider {
    init(examining directory: String) {
        let keyRing = KeyRingFile(path: "", credentials: nil, directory: directory)
        self.init(directory: directory, options: StoreOptions(keyRing: keyRing))
    }
}

extension SQLiteTokenStore {
    /// Opens a store with the standard options, but for what `change` changes.
    convenience init(
        at directory: String, events: Events = Events(), _ change: (inout StoreOptions) -> Void = { _ in }
    ) throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: directory))
        // Otherwise a write fails that a busy machine holds up for long.
        options.queueTime = .seconds(3_600)
        change(&options)
        try self.init(directory: directory, options: options, report: { events.add($0) })
    }

    /// Opens the store of a folder, which is made if it is missing.
    convenience init(
        directory: String, options: StoreOptions, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(SQLiteOpenError) {
        try self.init(in: try .lock(directory), options: options, report: report)
    }
}

extension SQLiteAdministrator {
    /// Another administrator than the store's own.
    init(_ store: SQLiteTokenStore) {
        self.init(
            OpenDatabase(
                directory: store.directory, path: store.path, options: store.options, state: store.state,
                writerThread: store.writerThread), users: store.administrator.users)
    }

    nonisolated func store(_ tokens: [(token: Token, writtenAt: Int64?)]) async -> [Result<Void, StoreError>] {
        await store(tokens, keepsNewer: false)
    }

    /// Stores `infoN` under `idN`.
    nonisolated func fill(_ numbers: Range<Int>) async {
        let outcomes = await store(
            numbers.map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), nil) }
        )
        #expect(outcomes.allSatisfy { (try? $0.get()) != nil })
    }

    nonisolated func info(_ id: String) async throws -> String? {
        try await fetch(Array(id.utf8)).map { String(decoding: $0, as: UTF8.self) }
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
