import Metrics
import Synchronization
import System
import TokenStore

/// Walks over all rows of an open store, on a thread of its own; see `WalkState`.
///
/// Any thread.
final class Walker: Sendable {
    private struct Shared {
        /// As of the last step.
        var state: WalkState
        /// How many callers wait for a complete round.
        var waiting = 0
        /// The number of the latest round that was begun for a caller.
        var wanted = 0
        /// Why the last step failed; nil if it did not.
        var failure: StoreError?
        var isStopped = false

        var isWanted: Bool { waiting > 0 && (state.last?.round ?? 0) < wanted }
    }

    private let store: OpenDatabase
    private let shared: Mutex<Shared>
    /// The round that was under way when the store was opened.
    ///
    /// Only later rounds can show that a key is unused: rows that are sealed with former keys are noted since then.
    private let firstRound: Int
    private let alarm = Semaphore()
    private let finished = Semaphore()

    private static let pauseAfterFailure = Duration.seconds(10)

    /// - Parameters:
    ///   - store: An open store.
    ///   - state: The state that is saved in it.
    init(_ store: OpenDatabase, _ state: WalkState) {
        self.store = store
        var known = state
        // Version 1.0 did not record it.
        let ofRows = state.last?.keyNumbers.max() ?? 0
        known.newestKey = max(state.newestKey ?? 0, ofRows, store.state.sealing.ring.newest.number)
        shared = Mutex(Shared(state: known))
        firstRound = state.present.round
        NamedThread.startOrExit("walk") { [self] in
            run(WalkSteps(store, state))
            finished.signal()
        }
    }

    var status: WalkStatus {
        let counts = store.state.metrics
        return WalkStatus(state, total: Int(counts.tokens.value + counts.sessions.value))
    }

    var state: WalkState { shared.withLock(\.state) }

    /// The numbers of the keys that rows are sealed with and the ring lacks, as far as the walk has seen, in ascending order.
    var missingKeys: [Int] {
        let (state, ring) = (state, store.state.sealing.ring)
        let missing = state.present.missingKeys.union(state.last?.missingKeys ?? [])
        return missing.filter { ring.numberedKey($0) == nil }.sorted()
    }

    /// Whether it is certain that no row which opens is sealed with a key.
    ///
    /// It is not if the last round could not read everything, or if the ring lacked the key then.
    func isUnused(_ number: Int) -> Bool {
        shared.withLock { shared in
            guard let last = shared.state.last, last.round > firstRound, last.damages.isEmpty else { return false }
            let numbers = last.keyNumbers.union(last.missingKeys)
            return !numbers.contains(number) && !store.state.sealing.hasFormerKey(number)
        }
    }

    /// Ends the walk after its present step; blocks its thread.
    func stop() {
        let wasStopped = shared.withLock { shared in
            defer { shared.isStopped = true }
            return shared.isStopped
        }
        guard !wasStopped else { return }
        alarm.signal()
        finished.wait()
    }

    // MARK: - Rounds

    /// Begins a round, goes through it without pauses, and returns what it has found.
    func round(_ progress: @Sendable (StoreProgress) -> Void) async throws(StoreError) -> WalkReport {
        shared.withLock { $0.waiting += 1 }
        defer { shared.withLock { $0.waiting -= 1 } }
        let number = await begin()
        while true {
            let (state, failure, isStopped) = shared.withLock { ($0.state, $0.failure, $0.isStopped) }
            if let last = state.last, last.round >= number { return last }
            if let failure { throw failure }
            if isStopped { throw .closed }
            if state.present.round == number { progress(status.progress) }
            do {
                try await Task.sleep(for: .milliseconds(20))
            } catch {
                throw .refused("it was interrupted, because the server is stopping or the client has disconnected")
            }
        }
    }

    /// Begins a round between two groups of the writer.
    ///
    /// So a row that is sealed with a former key is either written already, and will be visited, or is noted when it is written.
    ///
    /// - Returns: Its number.
    @discardableResult
    func begin() async -> Int {
        let number = try? await store.writerThread.perform { [self] (_) throws(SQLiteError) in beginBetweenGroups() }
        if let number { return number }
        defer { alarm.signal() }
        // While nothing can be written, the keys stay noted, and only count as used for longer than necessary.
        return begin { [] }
    }

    /// As `begin`; called on the writer's thread.
    @discardableResult
    func beginBetweenGroups() -> Int {
        defer { alarm.signal() }
        return begin(forgetting: store.state.sealing.takeFormerKeys)
    }

    /// Begins a round.
    ///
    /// - Parameter forgetting: Returns the noted keys and forgets them. They count as keys of the last round until the new one has
    ///   ended, so that they never seem to be unused in between.
    private func begin(forgetting: () -> Set<Int>) -> Int {
        shared.withLock { shared in
            let late = forgetting()
            shared.state.last?.keyNumbers.formUnion(late)
            shared.state.begin()
            (shared.wanted, shared.failure) = (shared.state.present.round, nil)
            return shared.wanted
        }
    }

    /// Notes the number of a key that was added to the ring; the next step saves it, or the end of the walk.
    func note(newestKey number: Int) {
        shared.withLock { $0.state.newestKey = max(number, $0.state.newestKey ?? 0) }
    }

    // MARK: - The thread

    private func run(_ steps: consuming WalkSteps) {
        var writes: UInt64 = 0
        while true {
            let (state, isWanted, isStopped) = shared.withLock { ($0.state, $0.isWanted, $0.isStopped) }
            if isStopped { return steps.finish(state) }
            // A command walks only if it is asked to.
            guard store.options.isServing || isWanted else {
                alarm.wait()
                continue
            }
            let began = ContinuousClock.now
            do {
                let (next, count) = try steps.step(from: state)
                // Unless another round was begun meanwhile.
                shared.withLock { shared in
                    guard shared.state.present.round == state.present.round else { return }
                    let newest = shared.state.newestKey
                    (shared.state, shared.failure) = (next, nil)
                    shared.state.newestKey = newest
                }
                let former = writes
                writes = store.state.metrics.writes.value
                alarm.wait(
                    atMost: isWanted || steps.isUrgent
                        // Only clients that write make this round pause.
                        ? (writes == former ? .zero : .now - began)
                        : WalkPace.pause(after: count, of: status.progress.total, took: .now - began))
            } catch {
                steps.forget()
                shared.withLock { $0.failure = error }
                alarm.wait(atMost: Self.pauseAfterFailure)
            }
        }
    }
}
