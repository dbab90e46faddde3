import StoreConformance
import TokenStore

/// The handle of a `SimulatedStore`: the loop's side, and the threads behind it.
///
/// Unchecked: the simulator has one thread.
final class SimulatedHandle: TokensOnlyHandle, @unchecked Sendable {
    private struct Read {
        let id: Int
        let limit: Int
        let completion: Completion<Fetched>
    }

    private let store: SimulatedStore
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var reads: [Read] = []
    private var gathered: [Write] = []
    private var writer = Writer()
    /// Outcomes that are on their way back to the loop.
    private var outcomes: [() -> Void] = []

    init(_ store: SimulatedStore, _ deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        self.store = store
        self.deliver = deliver
    }

    private var world: World { store.world }
    private var random: Randomness { world.random }
    private var fails: Bool { world.choices.storeFails && random.happens(oneIn: 6) }
    private static let fault = StoreError.read(StoreFault("simulated"))

    var timeLimit: Duration? { world.choices.storeTime.map { .seconds($0) } }

    // MARK: - On the loop

    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        precondition(session == nil, "no simulated client has a session")
        let id = number(of: id)
        if world.choices.readsLater {
            reads.append(Read(id: id, limit: limit, completion: makeCompletion()))
            return nil
        }
        world.interleave()
        if fails { throw Self.fault }
        let fetched = read(id, limit)
        world.interleave()
        return fetched
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        if fails { return completion(.failure(.overloaded(.queue(bytes: 1)))) }
        let id = number(of: id)
        gathered.append(Write(id: id, number: world.ledger.write(of: tokenInfo, id: id), completion: completion))
        let waiting = (gathered + writer.all).filter(\.completion.isAwaited)
        let bytes = waiting.reduce(0) { $0 + world.ledger.info(ofWrite: $1.number).count }
        if bytes > world.choices.bufferLimit { violation("clients wait with \(bytes) bytes, more than limits.buffers") }
    }

    func flush() {
        // What nobody waits for any more may be dropped.
        writer.queue += gathered.filter { $0.completion.isAwaited || random.happens(oneIn: 2) }
        gathered = []
    }

    private func number(of id: [UInt8]) -> Int {
        let text = String(decoding: id, as: UTF8.self)
        guard text.hasPrefix("id"), let number = Int(text.dropFirst(2)) else {
            violation("the store is asked for \(text)")
        }
        return number
    }

    private func read(_ id: Int, _ limit: Int) -> Fetched {
        guard let current = world.ledger.current(id: id, at: world.kernel.clock.unixTime) else { return .nothing }
        if current.info.count > limit { return .longer }
        let version = TokenVersion(rawValue: Int64(current.write))
        return .found(
            current.info, writtenAt: world.kernel.clock.unixTime, until: current.deadline, version: version)
    }

    // MARK: - On the store's threads

    /// Does one thing; false if there is nothing to do.
    func act() -> Bool {
        let first = random.below(3)
        return (first..<first + 3).contains { choice in
            switch choice % 3 {
            case 0: finishRead()
            case 1: writer.act(store, fails: fails) { outcomes.append($0) }
            default: bringBack()
            }
        }
    }

    private func finishRead() -> Bool {
        guard !reads.isEmpty else { return false }
        let read = reads.remove(at: random.below(reads.count))
        world.note("store reads", read.id)
        let outcome: Result<Fetched, StoreError> =
            fails ? .failure(Self.fault) : .success(self.read(read.id, read.limit))
        outcomes.append { read.completion(outcome) }
        return true
    }

    /// Brings some of the outcomes back to the loop, in any order.
    private func bringBack() -> Bool {
        guard !outcomes.isEmpty else { return false }
        var calls: [() -> Void] = []
        repeat {
            calls.append(outcomes.remove(at: random.below(outcomes.count)))
        } while !outcomes.isEmpty && random.happens(oneIn: 2)
        world.note("store answers", calls.count)
        let group = Handover(calls)
        world.onAnotherThread { deliver { for call in group.calls { call() } } }
        return true
    }

    /// Something of the loop's thread, on its way back there.
    private struct Handover: @unchecked Sendable {
        let calls: [() -> Void]

        init(_ calls: [() -> Void]) {
            self.calls = calls
        }
    }
}
