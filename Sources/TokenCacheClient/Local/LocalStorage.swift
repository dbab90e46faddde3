internal import Foundation

/// Where one item of bytes is kept on the device.
///
/// Its methods are short and may be called from any thread.
protocol LocalStorage: Sendable {
    /// The item; nil if there is surely none.
    func read() throws(TokenCacheError) -> Data?

    /// Puts an item in place of the one that is there: after a crash there is the earlier one or this one, whole.
    func write(_ item: Data) throws(TokenCacheError)

    /// Removes the item, if there is one.
    func remove() throws(TokenCacheError)
}

/// Keeps the item as long as the process lives; copies share it.
struct MemoryStorage: LocalStorage {
    private let item = Locked<Data?>(nil)

    func read() -> Data? {
        item.withLock { $0 }
    }

    func write(_ item: Data) {
        self.item.withLock { $0 = item }
    }

    func remove() {
        item.withLock { $0 = nil }
    }
}
