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
    var preloader: (any StorePreloader)? { nil }

    func change(_ retention: Retention) {}
    func report(writesTo observer: any WriteObserver) { self.observer = observer }
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
