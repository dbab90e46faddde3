internal import Glibc
internal import Synchronization
package import System

/// One thread's epoll instance, run as a Swift task executor.
///
/// A task started with `Task(executorPreference: loop)` runs on the loop's thread from its first line to its last and
/// suspends only when it waits for a descriptor, a timer or another thread. A turn of the loop is: wait for events, run
/// jobs that are ready, then handlers that queue for their turn, deliver the events, end waits whose time is over, call
/// `endOfTurn`. Each of these has a time budget; what is left then comes in the next turn: see `EventLoop+Turns.swift`.
///
/// `enqueue`, `isCurrent`, `execute`, `beginDraining`, `endIdleWaits`, `abandon` and `stop` may be called on any thread; everything else
/// belongs to tasks on the loop, which debug builds check.
package final class EventLoop: TaskExecutor, @unchecked Sendable {
    // Unchecked: fields marked "loop" are touched on the loop's thread only, the others are safe by themselves.

    /// Jobs from other threads, taken over at the start of a turn.
    private let inbox = Mutex<[UnownedJob]>([])
    private let wakeUp: WakeUp
    /// The loop's thread as a number, 0 before `run`.
    private let thread = Atomic<UInt>(0)

    var epoll: Epoll  // loop
    let registrations = RegistrationTable()  // loop
    var timers = TimerHeap()  // loop
    var sleepers: [Waiter<Void>?] = []  // loop
    var freeSleepers: [Int] = []  // loop
    private var jobs: [UnownedJob] = []  // loop
    /// Handlers that go on in the next turn, and those with long work, which share a smaller part of each turn.
    var queue = TurnQueue()  // loop
    var longQueue = TurnQueue()  // loop
    private var isStopping = false  // loop

    // Atomics, though only the loop writes them: each request asks several times, and a plain field of a class is guarded
    // against overlapping accesses at run time.
    private let turnBegan = Atomic<UInt64>(MonotonicTime.now.nanoseconds)
    private let eventsArrived = Atomic<UInt64>(MonotonicTime.now.nanoseconds)
    let draining = Atomic<Bool>(false)
    let idleWaitsEnded = Atomic<Bool>(false)
    let abandoned = Atomic<Bool>(false)
    /// Set while there is a handler in a queue.
    let hasQueued = Atomic<Bool>(false)
    /// Set by what takes longer than a short request, so that the clock is looked at before anything else is begun.
    let hasWorkedLong = Atomic<Bool>(false)
    /// Counts turns, for whoever watches over the loop.
    private let turns = Atomic<UInt64>(0)
    /// Called before each wait for events: the moment to hand over what a turn has gathered.
    ///
    /// Set it before `run`.
    package var endOfTurn: () -> Void = {}  // loop

    package init() throws(SystemError) {
        epoll = try Epoll()
        wakeUp = try WakeUp()
        try epoll.add(wakeUp.descriptor.number, events: [.readable, .edgeTriggered], tag: Self.wakeUpTag)
    }

    /// No descriptor has this number.
    private static let wakeUpTag = UInt64.max

    /// The time when the current turn began: cheaper than the clock and good enough for deadlines.
    package var now: MonotonicTime { MonotonicTime(nanoseconds: turnBegan.load(ordering: .relaxed)) }
    /// When the events that are being delivered were received: a turn or more before `now` when there are many.
    package var lastWait: MonotonicTime { MonotonicTime(nanoseconds: eventsArrived.load(ordering: .relaxed)) }
    /// Nothing is accepted any more; what is asked on open connections is answered, and that is their end.
    package var isDraining: Bool { draining.load(ordering: .relaxed) }
    /// Idle waits end at once: what has been received is answered, nothing new is waited for.
    var hasEndedIdleWaits: Bool { idleWaitsEnded.load(ordering: .relaxed) }
    /// Every wait ends at once.
    package var isAbandoned: Bool { abandoned.load(ordering: .relaxed) }

    // MARK: - Any thread

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        if isCurrent {
            jobs.append(job)
            return
        }
        let isFirst = inbox.withLock { jobs in
            jobs.append(job)
            return jobs.count == 1
        }
        // Further jobs come along with the first: the loop empties the box each time it wakes.
        if isFirst { wakeUp.signal() }
    }

    /// True on the loop's own thread.
    package var isCurrent: Bool {
        thread.load(ordering: .relaxed) == UInt(pthread_self())
    }

    /// Runs a closure on the loop's thread, soon.
    package func execute(_ work: @escaping @Sendable () -> Void) {
        Task(executorPreference: self) { work() }
    }

    /// Ends `run` after the turn in which this takes effect.
    ///
    /// Tasks that still wait never wake again.
    package func stop() {
        execute { self.isStopping = true }
    }

    // MARK: - The loop's thread

    /// Runs turns on the calling thread until `stop`.
    package func run() {
        thread.store(UInt(pthread_self()), ordering: .relaxed)
        var left = LeftOver()
        while !isStopping {
            let isDelivered = left.events.isEmpty
            if isDelivered { left.events = 0..<epoll.wait(timeoutInMilliseconds: timeoutInMilliseconds(left)) }
            // Only written here.
            turns.store(turns.load(ordering: .relaxed) &+ 1, ordering: .relaxed)
            let began = MonotonicTime.now.nanoseconds
            turnBegan.store(began, ordering: .relaxed)
            if isDelivered { eventsArrived.store(began, ordering: .relaxed) }
            // Before the events: what another thread has had done before a client sent its request comes before that request.
            takeOverInbox()
            runJobs(&left)
            if hasQueued.load(ordering: .relaxed) { runQueues() }
            deliverEvents(&left)
            // A wait whose event is still to be delivered has not come to nothing.
            if left.events.isEmpty { fireTimers() }
            endOfTurn()
        }
    }

    /// What turns leave to the next ones.
    ///
    /// Not in fields of the loop, which would be guarded against overlapping accesses at run time.
    private struct LeftOver {
        /// Jobs that are being run, of which those before `nextJob` have been.
        var jobs: [UnownedJob] = []
        var nextJob = 0
        /// Events of the last wait that have yet to be delivered.
        var events = 0..<0

        var hasJobs: Bool { nextJob < jobs.count }
    }

    /// Turns since the start; any thread.
    package var turnCount: UInt64 { turns.load(ordering: .relaxed) }

    /// Checks in debug builds that the caller is on the loop's thread.
    @inline(__always)
    func assertCurrent() {
        assert(isCurrent, "a loop's registrations and timers belong to its own thread")
    }

    private func takeOverInbox() {
        inbox.withLock { arrived in
            guard !arrived.isEmpty else { return }
            if jobs.isEmpty {
                swap(&jobs, &arrived)
            } else {
                jobs.append(contentsOf: arrived)
                arrived.removeAll(keepingCapacity: true)
            }
        }
    }

    /// Runs the jobs that are ready now, as many as the time allows.
    ///
    /// Jobs that become ready meanwhile wait for the next turn, so that a task that never runs out of work cannot keep
    /// the loop from its descriptors.
    private func runJobs(_ left: inout LeftOver) {
        if !left.hasJobs {
            guard !jobs.isEmpty else { return }
            left.jobs.removeAll(keepingCapacity: true)
            left.nextJob = 0
            swap(&jobs, &left.jobs)
        }
        let executor = unsafe asUnownedTaskExecutor()
        // Most often there is one job, which needs no clock.
        let budget = left.jobs.count - left.nextJob > 1 ? TurnBudget(began: .now) : nil
        while left.hasJobs {
            let job = left.jobs[left.nextJob]
            left.nextJob += 1
            unsafe job.runSynchronously(on: executor)
            if let budget, budget.isSpent { return }
        }
    }

    /// Delivers the events of the last wait, as many as the time allows.
    private func deliverEvents(_ left: inout LeftOver) {
        var budget: TurnBudget?
        for index in left.events {
            let (events, tag) = epoll.event(at: index)
            if tag != Self.wakeUpTag { deliver(events, to: RegistrationID(tag: tag)) }
            guard index % Self.eventsPerLook == Self.eventsPerLook - 1 || takeHasWorkedLong() else { continue }
            let current = budget ?? TurnBudget(began: now)
            budget = current
            if current.isSpent {
                left.events = (index + 1)..<left.events.upperBound
                return
            }
        }
        left.events = 0..<0
    }

    /// Events of short requests between two looks at the clock, which takes as long as a hundredth of one.
    private static let eventsPerLook = 16

    private func timeoutInMilliseconds(_ left: borrowing LeftOver) -> Int32 {
        if !jobs.isEmpty || left.hasJobs || hasQueued.load(ordering: .relaxed) { return 0 }
        let earliest = timers.earliest
        if earliest == .never { return -1 }
        // Rounded up: waking a moment early would mean a second wait for the rest.
        let milliseconds = ((earliest - now).count + 999_999) / 1_000_000
        return Int32(clamping: milliseconds)
    }
}
