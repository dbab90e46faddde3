import Dispatch
import Glibc
import Metrics
import Synchronization
import System
import TokenStore

/// Changes that wait to be committed together.
struct WriteBatch: Sendable {
    let changes: [PendingChange]
    /// Called when all of them have outcomes.
    ///
    /// Usually called on the writer's thread; on another one if the writer has stalled or is closed.
    let finish: @Sendable () -> Void
}

/// The one thread that commits.
///
/// It takes all batches that wait and commits them in one transaction: while one commit is on its way to the disk the
/// next group gathers, so groups grow with the load. A write that finds it idle is committed at once; only after a group
/// of several changes does it wait a moment for the next requests of the same clients (`GroupPause`). Between groups it
/// does maintenance and operators' requests, one small step at a time.
final class WriterThread: Sendable {
    private struct Job: Sendable {
        let run: @Sendable (RecoveringDatabase) -> Void
        /// Called instead of `run` while the disk stalls; nil for what waits for the disk.
        let fail: (@Sendable (StoreError) -> Void)?
    }

    private struct Queue {
        var batches: [WriteBatch] = []
        var jobs: [Job] = []
        var isClosed = false

        var isEmpty: Bool { batches.isEmpty && jobs.isEmpty }
    }

    private let queue = Mutex(Queue())
    /// Asked before rows of clients are submitted.
    let admission: WriteAdmission
    /// Runs the check for a stalled disk, which the writer's thread cannot make while it waits for that disk.
    private let stallQueue = DispatchQueue(label: "stalled writes")
    /// Signalled when the queue stops being empty or is closed.
    private let available = Semaphore()
    private let finished = Semaphore()
    private let state: StoreState
    private let report: @Sendable (StoreEvent) -> Void
    /// Whether what has expired is deleted.
    private let isServing: Bool

    init(_ database: RecoveringDatabase, state: StoreState, options: StoreOptions) {
        self.state = state
        admission = WriteAdmission(byteLimit: options.queueLimit, timeLimit: options.queueTime)
        (report, isServing) = (options.report, options.isServing)
        state.clock.use { $0 = ExpiryClock(saved: database.lastClockLook, at: .now) }
        // The caller has opened the database, so that its errors stop the start; from now on it belongs to the thread.
        let handedOver = ThreadHandoff(database)
        NamedThread.startOrExit("writer") { [self] in
            run(handedOver.take())
            // By now the database is closed.
            finished.signal()
        }
        checkForStalls()
    }

    /// Checks once a second whether the disk has stalled, for as long as this writer exists.
    private func checkForStalls() {
        stallQueue.asyncAfter(deadline: .now() + Self.stallCheckInterval) { [weak self] in
            self?.withdrawStalled()
            self?.checkForStalls()
        }
    }

    /// Time between two checks for a stalled disk.
    private static let stallCheckInterval = DispatchTimeInterval.seconds(1)

    /// Queues a batch.
    ///
    /// Its `finish` is called when the changes are made, or cannot be made.
    func submit(_ batch: WriteBatch) {
        if !enqueue({ $0.batches.append(batch) }) { fail(batch, .closed) }
    }

    private func fail(_ batch: WriteBatch, _ error: StoreError) {
        for change in batch.changes { change.outcome = .failure(error) }
        finish(batch)
    }

    private func finish(_ batch: WriteBatch) {
        admission.release(batch.changes.reduce(0) { $0 + $1.bytes })
        batch.finish()
    }

    /// Fails the batches and jobs that are queued behind a write that has stalled.
    ///
    /// The writer's thread has not taken them from the queue yet, so none of their changes is or will be made.
    private func withdrawStalled() {
        guard let stall = admission.lookForStall() else { return }
        let (batches, jobs) = queue.withLock { queue in
            defer {
                queue.batches = []
                queue.jobs.removeAll { $0.fail != nil }
            }
            return (queue.batches, queue.jobs)
        }
        for batch in batches { fail(batch, .overloaded(stall)) }
        for job in jobs { job.fail?(.overloaded(stall)) }
    }

    /// Runs a closure with the database between two groups; what it stores is durable when this returns.
    ///
    /// While the disk stalls, it fails instead.
    ///
    /// - Parameters:
    ///   - ids: The unique ids whose tokens it changes.
    ///   - waitsForDisk: Whether to wait for a disk that stalls.
    ///   - body: What to do.
    func perform<Result: Sendable>(
        writing ids: [[UInt8]] = [], waitsForDisk: Bool = false,
        _ body: @escaping @Sendable (WriterConnection) throws(SQLiteError) -> Result
    ) async throws(StoreError) -> Result {
        let result: Swift.Result<Result, StoreError> = await withCheckedContinuation { continuation in
            enqueue(writing: ids, waitsForDisk: waitsForDisk, body) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }

    /// As `perform`, but blocks the calling thread meanwhile.
    func performAndWait<Result: Sendable>(
        _ body: @escaping @Sendable (WriterConnection) throws(SQLiteError) -> Result
    ) throws(StoreError) -> Result {
        let waited = WaitedOutcome<Result>()
        enqueue(writing: [], waitsForDisk: false, body) { waited.set($0) }
        return try waited.get()
    }

    /// Runs a closure between two groups, whatever state the database is in; nobody waits for it.
    func runLater(_ body: @escaping @Sendable () -> Void) {
        _ = enqueue { $0.jobs.append(Job(run: { _ in body() }, fail: nil)) }
    }

    private func enqueue<Result: Sendable>(
        writing ids: [[UInt8]], waitsForDisk: Bool,
        _ body: @escaping @Sendable (WriterConnection) throws(SQLiteError) -> Result,
        _ finish: @escaping @Sendable (Swift.Result<Result, StoreError>) -> Void
    ) {
        if !waitsForDisk, let stall = admission.stall { return finish(.failure(.overloaded(stall))) }
        let run: @Sendable (RecoveringDatabase) -> Void = { database in
            do throws(StoreError) {
                finish(.success(try database.perform(writing: ids, body)))
            } catch {
                finish(.failure(error))
            }
        }
        let fail: @Sendable (StoreError) -> Void = { finish(.failure($0)) }
        let job = Job(run: run, fail: waitsForDisk ? nil : fail)
        if !enqueue({ $0.jobs.append(job) }) { finish(.failure(.closed)) }
    }

    private func enqueue(_ add: (inout Queue) -> Void) -> Bool {
        let (isFirst, isClosed) = queue.withLock { queue in
            guard !queue.isClosed else { return (false, true) }
            let wasEmpty = queue.isEmpty
            add(&queue)
            return (wasEmpty, false)
        }
        if isFirst { available.signal() }
        return !isClosed
    }

    /// Commits what is queued, then closes the database.
    ///
    /// Returns when that is done.
    func close() {
        let wasOpen = queue.withLock { queue in
            defer { queue.isClosed = true }
            return !queue.isClosed
        }
        guard wasOpen else { return }
        available.signal()
        finished.wait()
    }

    // MARK: - The thread

    private func run(_ database: RecoveringDatabase) {
        var schedule = MaintenanceSchedule(at: .now)
        schedule.noteRoom(database.walRoom())
        var mayWait = true
        var pause: GroupPause?
        while true {
            pause?.wait()
            pause = nil
            if mayWait { wait(until: schedule.next) }
            let (batches, job, isIdle, isClosed) = take()
            defer { admission.noteResting() }
            admission.noteBusy()
            if !batches.isEmpty {
                // On a full disk a checkpoint may make room, so failing commits must not delay it.
                let began = ContinuousClock.now
                let changes = batches.count == 1 ? batches[0].changes : batches.flatMap(\.changes)
                let isMade = database.write(changes)
                for batch in batches { finish(batch) }
                if isMade {
                    pause = GroupPause(afterGroupOf: changes.count, took: .now - began)
                    schedule.noteCommit(at: .now)
                    state.clock.use { $0.noteWrite() }
                } else {
                    schedule.noteFailure(at: .now)
                }
            }
            if let job {
                // Timed apart from the commit before it: only a single step that takes too long is a stall.
                admission.noteBusy()
                job.run(database)
                schedule.noteCommit(at: .now)
            }
            if isClosed && isIdle {
                database.close()
                return
            }
            schedule.noteWAL(size: database.walSize, isSynchronizing: database.isSynchronizing)
            let step = schedule.due(at: .now, walSize: database.walSize, isIdle: isIdle)
            if let step {
                admission.noteBusy()
                carryOut(step, &schedule, database)
            }
            // More jobs may be queued, and more steps due.
            mayWait = isIdle && step == nil
        }
    }

    private func wait(until moment: ContinuousClock.Instant) {
        available.wait(atMost: moment - .now)
    }

    /// Takes all batches and one job from the queue; tells whether nothing else waits, and whether nothing else will
    /// come.
    private func take() -> (batches: [WriteBatch], job: Job?, isIdle: Bool, isClosed: Bool) {
        queue.withLock { queue in
            let batches = queue.batches
            queue.batches = []
            let job = queue.jobs.isEmpty ? nil : queue.jobs.removeFirst()
            return (batches, job, queue.isEmpty, queue.isClosed)
        }
    }

    private func carryOut(
        _ step: MaintenanceSchedule.Step, _ schedule: inout MaintenanceSchedule, _ database: RecoveringDatabase
    ) {
        do {
            switch step {
            case .lookAfterFiles:
                schedule.noteLook(at: .now)
                database.lookAfterFiles()
                schedule.noteRoom(database.walRoom())
                state.clock.use { $0.look(at: .now) }
                _ = state.clock.mayDelete(isExpiring: isExpiring(database), report)
                try saveClockLook(database)
            case .prepareCheckpoint:
                schedule.notePreparation(walSize: database.walSize)
                try database.perform(looksBefore: true) { [available] (writer) throws(SQLiteError) in
                    try writer.prepareCheckpoint { available.signal() }
                }
            case .checkpoint(let empties):
                var outcome = SQLiteConnection.CheckpointOutcome.heldUp
                // After an error, the checkpoint is tried again later.
                defer {
                    schedule.noteCheckpoint(isComplete: outcome == .complete, empties: empties, at: .now)
                    schedule.noteRoom(database.walRoom())
                }
                let isTooLarge = schedule.isTooLarge(database.walSize)
                outcome = try database.perform(looksBefore: true) { (writer) throws(SQLiteError) in
                    writer.connection.progress?.marksEnd = true
                    return try writer.checkpoint(
                        empties ? .truncate : .restart, waiting: isTooLarge ? 100 : 10, insists: isTooLarge
                    )
                }
            }
        } catch {
            // RecoveringDatabase reports the first of successive failures; the step is tried again.
        }
    }

    // MARK: - The clock

    /// Whether there is something that expires and would be deleted here.
    private func isExpiring(_ database: RecoveringDatabase) -> Bool {
        isServing && (!state.retention.isUnlimited || database.hasSessions)
    }

    private func saveClockLook(_ database: RecoveringDatabase) throws(StoreError) {
        let isExpiring = isExpiring(database)
        // While writes fail this one would fail as well, and it is not urgent.
        guard state.fault == nil, let time = state.clock.use({ $0.due(isExpiring: isExpiring) })
        else { return }
        try database.perform { (writer) throws(SQLiteError) in try writer.saveClockLook(time) }
        state.clock.use { $0.noteSaved(time) }
    }
}

/// The outcome of a job for a thread that waits for it.
private final class WaitedOutcome<Value: Sendable>: Sendable {
    private let outcome = Mutex<Result<Value, StoreError>?>(nil)
    private let isSet = Semaphore()

    func set(_ result: Result<Value, StoreError>) {
        outcome.withLock { $0 = result }
        isSet.signal()
    }

    func get() throws(StoreError) -> Value {
        isSet.wait()
        guard let result = outcome.withLock(\.self) else { throw .closed }
        return try result.get()
    }
}
