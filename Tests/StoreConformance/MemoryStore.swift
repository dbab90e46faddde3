import Synchronization
import TokenStore

/// A small store in memory: it does what every store does, and nothing that only some can do.
package final class MemoryStore: TokenStore {
    private let disk: MemoryDisk
    private let options: StoreOptions
    /// Whether reads end after they were begun, as those of a store that is far away.
    private let readsLater: Bool
    private let state: Mutex<State>

    private struct State {
        var retention: Retention
        var isClosed = false
        var queuedBytes = 0
        var writes: UInt64 = 0
        var observer: (any WriteObserver)?
    }

    /// - Parameters:
    ///   - disk: What outlives the store.
    ///   - options: Those about keys are ignored.
    ///   - readsLater: Whether reads end after they were begun.
    package init(_ disk: MemoryDisk, options: StoreOptions, readsLater: Bool = false) {
        self.disk = disk
        self.options = options
        self.readsLater = readsLater
        state = Mutex(State(retention: options.retention))
    }

    package var software: StoreSoftware { StoreSoftware(name: "Memory", version: "1") }
    package var summary: String { "a store in memory" }
    package var fault: StoreError? { nil }
    package var administrator: any StoreAdministrator { MemoryAdministrator(self) }
    package var preloader: (any StorePreloader)? { nil }
    package var seesAllWrites: Bool { true }

    package var metrics: StoreMetrics {
        let (writes, queuedBytes) = state.withLock { ($0.writes, $0.queuedBytes) }
        return StoreMetrics(writes: writes, tokens: UInt64(disk.count), queuedBytes: queuedBytes)
    }

    package func report(writesTo observer: any WriteObserver) {
        state.withLock { $0.observer = observer }
    }

    package func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        MemoryStoreHandle(self, readsLater: readsLater, deliver: deliver)
    }

    package func change(_ retention: Retention) {
        state.withLock { $0.retention = retention }
    }

    package func close() {
        state.withLock { $0.isClosed = true }
    }

    // MARK: - For handles and the administrator

    func fetch(_ id: [UInt8], upTo limit: Int = .max) -> Fetched {
        let retention = state.withLock(\.retention)
        guard let row = disk.row(of: id), row.isCurrent(retention) else { return .nothing }
        return row.info.count <= limit ? .found(row.info, until: row.deadline(retention)) : .longer
    }

    /// Counts a token that is to wait; the error if it may not.
    func admit(_ bytes: Int) -> StoreError? {
        state.withLock { state in
            if state.queuedBytes + bytes > options.queueLimit { return .overloaded(.queue(bytes: options.queueLimit)) }
            state.queuedBytes += bytes
            return nil
        }
    }

    func commit(_ rows: [(id: [UInt8], row: MemoryRow)], admittedBytes: Int, keepsNewer: Bool = false) -> [Result<
        Void, StoreError
    >] {
        let observer = state.withLock { state in
            state.queuedBytes -= admittedBytes
            return state.observer
        }
        let ids = rows.map(\.id)
        observer?.willWrite(ids)
        defer { observer?.didWrite(ids) }
        return rows.map { id, row in
            if state.withLock(\.isClosed) { return .failure(.closed) }
            let outcome = disk.write(row, under: id, tokenLimit: options.tokenLimit, keepsNewer: keepsNewer)
            if case .success = outcome { state.withLock { $0.writes += 1 } }
            return outcome
        }
    }

    func remove(_ ids: [[UInt8]]) -> Int {
        let observer = state.withLock(\.observer)
        observer?.willWrite(ids)
        defer { observer?.didWrite(ids) }
        return disk.remove(ids)
    }

    func page(after id: [UInt8]?, limit: Int) -> (rows: [(id: [UInt8], row: MemoryRow)], isLast: Bool) {
        disk.page(after: id, limit: limit)
    }

    var count: Int { disk.count }
}
