import Synchronization

@testable import TokenStore

/// What a store has reported.
final class Events: Sendable {
    private let list = Mutex<[StoreEvent]>([])

    func add(_ event: StoreEvent) {
        list.withLock { $0.append(event) }
    }

    var all: [StoreEvent] { list.withLock(\.self) }
}

extension SQLiteTokenStore {
    /// Opens a store with the standard options, but for what `change` changes.
    convenience init(
        at directory: String, events: Events = Events(), _ change: (inout StoreOptions) -> Void = { _ in }
    ) throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: directory))
        change(&options)
        try self.init(directory: directory, options: options) { events.add($0) }
    }
}
