import Synchronization
import TokenStore

/// A small store in memory with none of the capabilities that only some stores have.
package final class MemoryStore: TokenStore {
    private let disk: MemoryDisk
    private let options: StoreOptions
    /// Whether reads return their outcome later, like those of a store on another machine.
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
    ///   - disk: Outlives the store.
    ///   - options: Those about keys are ignored.
    ///   - readsLater: Whether reads return their outcome later.
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
    package var seesAllWrites: Bool { true }

    package var metrics: StoreMetrics {
        let (writes, queuedBytes) = state.withLock { ($0.writes, $0.queuedBytes) }
        var metrics = StoreMetrics()
        (metrics.writes, metrics.queuedBytes) = (writes, queuedBytes)
        (metrics.tokens, metrics.sessions) = (UInt64(disk.count), UInt64(disk.sessionCount))
        return metrics
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

    package func finishWrites() {}

    package func close() {
        state.withLock { $0.isClosed = true }
    }

    // MARK: - For handles and the administrator

    func fetch(_ id: [UInt8], upTo limit: Int, if session: SessionKey?) -> Result<Fetched, StoreError> {
        let (retention, row) = (state.withLock(\.retention), disk.row(of: id))
        // After the token, as they are not read together.
        if let session, case .nothing = find(session) { return .failure(.sessionEnded) }
        guard let row, row.isCurrent(retention) else { return .success(.nothing) }
        return .success(
            row.info.count <= limit
                ? .found(
                    row.info, writtenAt: row.writtenAt, until: row.deadline(retention), version: row.version) : .longer)
    }

    /// Counts the bytes of a change that is to wait; returns an error if they are too many.
    func admit(_ bytes: Int) -> StoreError? {
        state.withLock { state in
            if state.queuedBytes + bytes > options.queueLimit { return .overloaded(.queue(bytes: options.queueLimit)) }
            state.queuedBytes += bytes
            return nil
        }
    }

    /// Makes changes, one after the other.
    func commit(_ changes: [MemoryChange], admittedBytes: Int) {
        let (observer, retention) = state.withLock { state in
            state.queuedBytes -= admittedBytes
            return (state.observer, state.retention)
        }
        let ids = changes.compactMap(\.writtenID)
        observer?.willWrite(ids)
        defer { observer?.didWrite(ids) }
        for change in changes {
            let isClosed = state.withLock(\.isClosed)
            change.carryOut(on: self, retention, isClosed ? .closed : nil)
        }
    }

    func write(
        _ row: MemoryRow, under id: [UInt8], if condition: WriteCondition, _ retention: Retention
    ) -> Result<TokenVersion, StoreError> {
        let outcome = disk.write(
            row, under: id, MemoryDisk.Rules(condition: condition, retention: retention))
        if case .success = outcome { state.withLock { $0.writes += 1 } }
        return outcome
    }

    func remove(_ id: [UInt8], if condition: WriteCondition, _ retention: Retention) -> Result<Bool, StoreError> {
        disk.remove(id, MemoryDisk.Rules(condition: condition, retention: retention))
    }

    /// Removes a token whatever its version; returns whether there was one, even an expired one.
    func removeRow(_ id: [UInt8]) -> Bool { disk.removeRow(id) }

    // MARK: - Sessions

    func create(_ session: UserSession, _ key: SessionKey, perUser: Int) -> Int {
        disk.add(session, key)
        let ended = disk.sessions { $1.user == session.user }.dropLast(max(1, perUser))
        end(Array(ended))
        return ended.count
    }

    /// Ends the sessions that fit.
    func end(where fits: (UserSession) -> Bool) -> [UserSession] {
        let found = disk.sessions { fits($1) }
        end(found)
        return found.map(\.session)
    }

    private func end(_ sessions: [(key: SessionKey, session: UserSession)]) {
        guard !sessions.isEmpty else { return }
        let (observer, keys) = (state.withLock(\.observer), sessions.map(\.key))
        observer?.willEnd(keys)
        disk.removeSessions(Set(keys))
        observer?.didEnd(keys)
    }

    func noteUse(of key: SessionKey, at time: Int64) {
        disk.noteUse(of: key, at: time)
    }

    func find(_ key: SessionKey) -> FoundSession {
        let found = disk.sessions { $0 == key && $1.expiresAt > MemoryRow.now }.first
        return found.map { .found($0.session) } ?? .nothing
    }

    func sessions(of user: [UInt8]) -> [UserSession] {
        disk.sessions { $1.user == user && $1.expiresAt > MemoryRow.now }.map(\.session)
    }

    func page(after id: [UInt8]?, limit: Int) -> (rows: [(id: [UInt8], row: MemoryRow)], isLast: Bool) {
        disk.page(after: id, limit: limit)
    }

    var count: Int { disk.count }
}
