import StoreConformance
import TokenStore

/// A store whose writer, reads and failures happen when the scheduler lets them.
///
/// Unchecked: the simulator has one thread.
final class SimulatedStore: TokenStore, @unchecked Sendable {
    unowned let world: World
    private(set) var observer: (any WriteObserver)?
    private(set) var handle: SimulatedHandle?
    /// For what no request of a client needs.
    private static let memory = MemoryStore(
        MemoryDisk(), options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: "")))

    init(_ world: World) {
        self.world = world
    }

    var software: StoreSoftware { Self.memory.software }
    var summary: String { "a simulated store" }
    var seesAllWrites: Bool { true }
    var fault: StoreError? { nil }
    var metrics: StoreMetrics { Self.memory.metrics }
    var administrator: any StoreAdministrator { Self.memory.administrator }

    func change(_ retention: Retention) {}
    func report(writesTo observer: any WriteObserver) { self.observer = observer }
    func finishWrites() {}
    func close() {}

    func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        let made = SimulatedHandle(self, deliver)
        handle = made
        return made
    }

    /// Does one thing of the store's own threads; false if they have nothing to do.
    func act() -> Bool { handle?.act() ?? false }

    func forgetHandle() { handle = nil }

    // MARK: - What operators do

    func removeByOperator(id: Int) {
        let key = Array("id\(id)".utf8)
        observer?.willWrite([key])
        world.ledger.remove(id: id)
        observer?.didWrite([key])
    }

    func changeEverything() { observer?.didChangeEverything() }
}

/// A token that is to be written.
struct Write {
    let id: Int
    /// In the ledger.
    let number: Int
    let completion: Completion<TokenVersion>
}

/// A store's writing thread, which commits all that waits in one transaction, one step at a time.
struct Writer {
    private enum Step {
        case waits
        /// The observer knows of the group.
        case announced
        /// The group is committed, or has failed.
        case ended([Result<TokenVersion, StoreError>])
    }

    var queue: [Write] = []
    private var group: [Write] = []
    var all: [Write] { queue + group }
    private var step = Step.waits

    /// Takes one step; false if there is nothing to write.
    ///
    /// - Parameters:
    ///   - store: Whose observer is told.
    ///   - fails: Whether a commit fails now.
    ///   - finish: Takes the calls of completions.
    mutating func act(_ store: SimulatedStore, fails: Bool, _ finish: (@escaping () -> Void) -> Void) -> Bool {
        switch step {
        case .waits:
            guard !queue.isEmpty else { return false }
            (group, queue) = (queue, [])
            step = .announced
            store.observer?.willWrite(ids)
            store.world.note("store begins to write", group.count)
        case .announced:
            let world = store.world
            let now = world.kernel.clock.unixTime
            let results: [Result<TokenVersion, StoreError>] = group.map { write in
                if fails { return .failure(.write(StoreFault("simulated"))) }
                if world.choices.storeFails && world.random.happens(oneIn: 8) {
                    return .failure(.full(StoreLimit(bytes: 1)))
                }
                world.ledger.commit(write.number, deadline: world.choices.retention.map { now + $0 } ?? .max)
                return .success(TokenVersion(rawValue: Int64(write.number)))
            }
            step = .ended(results)
            world.note("store commits", fails ? 0 : group.count)
        case .ended(let results):
            store.observer?.didWrite(ids)
            for (write, result) in zip(group, results) { finish { write.completion(result) } }
            (group, step) = ([], .waits)
        }
        return true
    }

    private var ids: [[UInt8]] { group.map { Array("id\($0.id)".utf8) } }
}
