import Synchronization

@testable import SQLiteStore
@testable import TokenStore

/// What a store has reported.
final class Events: Sendable {
    private let list = Mutex<[StoreEvent]>([])

    func add(_ event: StoreEvent) {
        list.withLock { $0.append(event) }
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

extension StoreReplacement {
    init(
        directory: String, options: StoreOptions, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(SQLiteOpenError) {
        try self.init(in: try .lock(directory), options: options, report: report)
    }
}

extension SQLiteTokenStore {
    /// Opens a store with the standard options, but for what `change` changes.
    convenience init(
        at directory: String, events: Events = Events(), _ change: (inout StoreOptions) -> Void = { _ in }
    ) throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: directory))
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
