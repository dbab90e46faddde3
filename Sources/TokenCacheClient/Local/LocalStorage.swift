internal import Foundation

/// Where one item of bytes is kept on the device.
///
/// Its methods wait for the disk. Call them from any thread but the main one.
protocol LocalStorage: Sendable {
    /// The item; nil if there is surely none.
    func read() throws(TokenCacheError) -> Data?

    /// Replaces the item: after a crash, either the earlier one or this one is there, complete.
    func write(_ item: Data) throws(TokenCacheError)

    /// Removes the item, if there is one. Needs no room on the disk.
    func remove() throws(TokenCacheError)

    /// The items of all users in the same place, as storages of their own.
    func all() throws(TokenCacheError) -> [any LocalStorage]

    /// Runs the body while no other task or process runs one in the same place.
    func exclusively<Result>(_ body: () throws(TokenCacheError) -> Result) throws(TokenCacheError) -> Result
}

/// Keeps the item as long as the process lives; copies share it.
struct MemoryStorage: LocalStorage {
    private let item = Locked<Data?>(nil)
    private let turn = NSRecursiveLock()

    func read() -> Data? {
        item.withLock { $0 }
    }

    func write(_ item: Data) {
        self.item.withLock { $0 = item }
    }

    func remove() {
        item.withLock { $0 = nil }
    }

    func all() -> [any LocalStorage] {
        [self]
    }

    func exclusively<Result>(_ body: () throws(TokenCacheError) -> Result) throws(TokenCacheError) -> Result {
        turn.lock()
        defer { turn.unlock() }
        return try body()
    }
}
