import Dispatch
import Glibc
import Metrics
import Synchronization
import System
import TokenStore

/// Changes that wait to be committed together.
struct WriteBatch: Sendable {
    let changes: [Change]
    /// Bytes that `WriteAdmission` has counted for them.
    var admittedBytes = 0
    /// Takes an outcome for each change.
    ///
    /// Usually called on the writer's thread; on another one if the writer has stalled or is closed.
    let finish: @Sendable ([Result<ChangeOutcome, StoreError>]) -> Void
}

/// The one thread that commits.
///
/// It takes all batches that wait and commits them in one transaction: while one commit is on its way to the disk the
/// next group gathers, so groups grow with the load. A write that finds it idle is committed at once; only after a group
/// of several changes does it wait a moment for the next requests of the same clients (`GroupPause`). Between groups it
/// does maintenance and operators' requests, one small step at a time.
final class WriterThread: Sendable {
    typealias Job = @Sendable (RecoveringDatabase) -> Void

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
    /// The outcomes are passed to the batch's `finish`.
    func submit(_ batch: WriteBatch) {
        if !enqueue({ $0.batches.append(batch) }) { fail(batch, .closed) }
    }

    private func fail(_ batch: WriteBatch, _ error: StoreError) {
        admission.release(batch.admittedBytes)
        batch.finish(batch.changes.map { _ in .failure(error) })
    }

    /// Fails the batches that are queued behind a write that has stalled.
    ///
    /// The writer's thread has not taken them from the queue yet, so none of their changes is or will be made.
    private func withdrawStalled() {
        guard let stall = admission.lookForStall() else { return }
        let batches = queue.withLock { queue in
            defer { queue.batches = [] }
            return queue.batches
        }
        for batch in batches { fail(batch, .overloaded(stall)) }
    }

    /// Runs a closure with the database between two groups; what it stores is durable when this returns.
    ///
    /// - Parameters:
    ///   - ids: The unique ids whose tokens it changes.
    ///   - body: What to do.
    func perform<Result: Sendable>(
        writing ids: [[UInt8]] = [], _ body: @escaping @Sendable (WriterConnection) throws(SQLiteError) -> Result
    ) async throws(StoreError) -> Result {
        let result: Swift.Result<Result, StoreError> = await withCheckedContinuation { continuation in
            let job: Job = { database in
                do throws(StoreError) {
                    continuation.resume(returning: .success(try database.perform(writing: ids, body)))
                } catch {
                    continuation.resume(returning: .failure(error))
                }
            }
            if !enqueue({ $0.jobs.append(job) }) { continuation.resume(returning: .failure(.closed)) }
        }
        return try result.get()
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
        var schedule = MaintenanceSchedule(retention: isServing ? state.retention : nil, at: .now)
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
                if write(batches, to: database) {
                    let count = batches.reduce(0) { $0 + $1.changes.count }
                    pause = GroupPause(afterGroupOf: count, took: .now - began)
                    schedule.noteCommit(at: .now)
                    state.clock.use { $0.noteWrite() }
                } else {
                    schedule.noteFailure(at: .now)
                }
            }
            schedule.noteRetention(state.retention, hasSessions: database.hasSessions, at: .now)
            if let job {
                // Timed apart from the commit before it: only a single step that takes too long is a stall.
                admission.noteBusy()
                job(database)
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

    /// Returns whether any of the changes was made.
    private func write(_ batches: [WriteBatch], to database: RecoveringDatabase) -> Bool {
        let outcomes: [Result<ChangeOutcome, StoreError>]
        if let batch = batches.first, batches.count == 1 {
            // Usually there is one batch, of one loop.
            outcomes = database.write(batch.changes)
            admission.release(batch.admittedBytes)
            batch.finish(outcomes)
        } else {
            outcomes = database.write(batches.flatMap(\.changes))
            var start = 0
            for batch in batches {
                admission.release(batch.admittedBytes)
                batch.finish(Array(outcomes[start..<(start + batch.changes.count)]))
                start += batch.changes.count
            }
        }
        return outcomes.contains { (try? $0.get()) != nil }
    }

    private func carryOut(
        _ step: MaintenanceSchedule.Step, _ schedule: inout MaintenanceSchedule, _ database: RecoveringDatabase
    ) {
        do throws(StoreError) {
            switch step {
            case .lookAfterFiles:
                schedule.noteLook(at: .now)
                database.lookAfterFiles()
                schedule.noteRoom(database.walRoom())
                state.clock.use { $0.look(at: .now) }
                if !isExpiring(database) {
                    _ = state.clock.mayDelete(isExpiring: false, report)
                    state.clock.use { $0.accept() }
                }
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
            case .expire:
                // If it fails, it must not be due again at once, or the writer would repeat it without a pause.
                var (removed, ended, isDone) = (0, 0, true)
                defer { schedule.noteExpiry(removed: removed + ended, isDone: isDone, at: .now) }
                let retention = state.retention
                // Only now, so that a server answers while the index of a large store is made. As in `SQLiteTokenStore.change`.
                admission.noteResting()
                try database.perform { (writer) throws(SQLiteError) in try writer.index(for: retention) }
                admission.noteBusy()
                guard isExpiring(database) else { return }
                let now = ExpiryClock.Reading.now
                state.clock.use { $0.look(at: now) }
                if let misdated = state.clock.use(\.misdated) {
                    isDone = false
                    let isRedated = try database.perform { (writer) throws(SQLiteError) in
                        retention.afterWritten == nil ? true : try writer.redate(misdated)
                    }
                    if isRedated { state.clock.use { $0.accept() } }
                    return
                }
                guard state.clock.mayDelete(report) else { return }
                state.observer?.willExpire(until: now.wall)
                (removed, ended, isDone) = try database.perform { (writer) throws(SQLiteError) in
                    try writer.expire(retention, at: now.wall)
                }
                state.metrics.expired.add(UInt64(removed))
                if removed > 0 { report(.expired(count: removed)) }
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
