internal import Glibc
internal import Synchronization

/// One thread's epoll instance, run as a Swift task executor.
///
/// A task started with `Task(executorPreference: loop)` runs on the loop's thread from its first line to its last and
/// suspends only when it waits for a descriptor, a timer or another thread. A turn of the loop is: run what is ready,
/// do what was left for the end of the turn, wait for events.
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
    private var running: [UnownedJob] = []  // loop
    private var isStopping = false  // loop

    // Atomics, though only the loop writes them: each request asks several times, and a plain field of a class is guarded
    // against overlapping accesses at run time.
    private let turnBegan = Atomic<UInt64>(MonotonicTime.now.nanoseconds)
    let draining = Atomic<Bool>(false)
    let idleWaitsEnded = Atomic<Bool>(false)
    let abandoned = Atomic<Bool>(false)
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
        while !isStopping {
            takeOverInbox()
            runJobs()
            endOfTurn()
            let count = epoll.wait(timeoutInMilliseconds: timeoutInMilliseconds())
            turnBegan.store(MonotonicTime.now.nanoseconds, ordering: .relaxed)
            for index in 0..<count {
                let (events, tag) = epoll.event(at: index)
                if tag != Self.wakeUpTag { deliver(events, to: RegistrationID(tag: tag)) }
            }
            fireTimers()
        }
    }

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

    /// Runs what is ready now.
    ///
    /// Jobs that become ready meanwhile wait for the next turn, so that a task that never runs out of work cannot keep
    /// the loop from its descriptors.
    private func runJobs() {
        swap(&jobs, &running)
        let executor = unsafe asUnownedTaskExecutor()
        for job in running {
            unsafe job.runSynchronously(on: executor)
        }
        running.removeAll(keepingCapacity: true)
    }

    private func timeoutInMilliseconds() -> Int32 {
        if !jobs.isEmpty { return 0 }
        let earliest = timers.earliest
        if earliest == .never { return -1 }
        // Rounded up: waking a moment early would mean a second wait for the rest.
        let milliseconds = ((earliest - now).count + 999_999) / 1_000_000
        return Int32(clamping: milliseconds)
    }
}
