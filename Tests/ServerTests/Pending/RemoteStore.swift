import StoreConformance
import Synchronization
import TokenStore

/// A store that is far away: an outcome comes when the test says so, or never.
final class RemoteStore: TokenStore {
    let timeLimit: Duration?
    private let handle = Mutex<RemoteStoreHandle?>(nil)
    /// For everything but handles.
    private let memory = MemoryStore(
        MemoryDisk(), options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
    )

    private let finishing: @Sendable (RemoteStoreHandle) -> Void
    private let closing: @Sendable () -> Void

    /// - Parameters:
    ///   - finishing: Called when the store is to finish its writes.
    ///   - closing: Called when the store is closed.
    init(
        timeLimit: Duration?, finishing: @escaping @Sendable (RemoteStoreHandle) -> Void = { _ in },
        closing: @escaping @Sendable () -> Void = {}
    ) {
        (self.timeLimit, self.finishing, self.closing) = (timeLimit, finishing, closing)
    }

    var software: StoreSoftware { memory.software }
    var summary: String { "a store far away" }
    var seesAllWrites: Bool { false }
    var fault: StoreError? { nil }
    var metrics: StoreMetrics { memory.metrics }
    var administrator: any StoreAdministrator { memory.administrator }

    func change(_ retention: Retention) {}

    func report(writesTo observer: any WriteObserver) {}

    func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        let made = RemoteStoreHandle(timeLimit: timeLimit, deliver: deliver)
        handle.withLock { $0 = made }
        return made
    }

    func finishWrites() { handle.withLock { $0.map(finishing) } }

    func close() { closing() }

    /// The one handle.
    var opened: RemoteStoreHandle {
        get throws {
            guard let handle = handle.withLock({ $0 }) else { throw StoreError.closed }
            return handle
        }
    }
}

/// The handle of a `RemoteStore`.
///
/// Unchecked: the completions are touched on the loop's thread alone.
final class RemoteStoreHandle: TokensOnlyHandle, @unchecked Sendable {
    private let limit: Mutex<Duration?>
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var reads: [String: [Completion<Fetched>]] = [:]
    private var writes: [String: [Completion<TokenVersion>]] = [:]
    private var removals: [String: [Completion<Bool>]] = [:]
    /// What was asked for, as `read ID`, `write ID` and `remove ID`; any thread.
    private let list = Mutex<[String]>([])

    init(timeLimit: Duration?, deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        limit = Mutex(timeLimit)
        self.deliver = deliver
    }

    /// Any thread.
    var timeLimit: Duration? {
        get { limit.withLock { $0 } }
        set { limit.withLock { $0 = newValue } }
    }

    var asked: [String] { list.withLock { $0 } }

    func fetch(
        _ id: [UInt8], upTo limit: Int, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        let id = String(decoding: id, as: UTF8.self)
        reads[id, default: []].append(makeCompletion())
        list.withLock { $0.append("read \(id)") }
        return nil
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        let id = String(decoding: id, as: UTF8.self)
        writes[id, default: []].append(completion)
        list.withLock { $0.append("write \(id)") }
    }

    func remove(
        _ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>
    ) {
        let id = String(decoding: id, as: UTF8.self)
        removals[id, default: []].append(completion)
        list.withLock { $0.append("remove \(id)") }
    }

    func flush() {}

    // MARK: - For the test

    /// Gives the outcome of the first read of an id.
    func finishRead(_ id: String, _ outcome: Result<Fetched, StoreError>) {
        deliver { self.reads[id]?.removeFirst()(outcome) }
    }

    func finishRead(_ id: String, found tokenInfo: String) {
        let version = TokenVersion(rawValue: 1)
        finishRead(id, .success(.found(Array(tokenInfo.utf8), until: .max, version: version)))
    }

    /// Gives the outcome of the first write of an id.
    func finishWrite(_ id: String, _ outcome: Result<TokenVersion, StoreError> = .success(TokenVersion(rawValue: 1))) {
        deliver { self.writes[id]?.removeFirst()(outcome) }
    }

    /// Gives the outcome of the first removal of an id.
    func finishRemoval(_ id: String, _ outcome: Result<Bool, StoreError> = .success(true)) {
        deliver { self.removals[id]?.removeFirst()(outcome) }
    }
}
