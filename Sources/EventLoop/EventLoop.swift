import CLinux
import Glibc
import Synchronization
package import System

/// One thread's epoll instance, run as a Swift task executor.
///
/// A task started with `Task(executorPreference: loop)` runs on the loop's thread from its first line to its last and
/// suspends only when it waits for a descriptor, a timer or another thread. In a turn, the loop waits for events, runs the
/// jobs that are ready and the handlers that are queued, delivers the events, ends waits whose deadline has passed, and calls
/// `endOfTurn`. Each part has a time budget; what it does not finish is left to the next turn (`EventLoop+Turns.swift`).
///
/// `enqueue`, `isCurrent`, `execute`, `beginDraining`, `endIdleWaits`, `abandon` and `stop` may be called on any thread; everything else
/// belongs to tasks on the loop, which debug builds check.
package final class EventLoop: TaskExecutor, @unchecked Sendable {
    // Unchecked: fields marked "loop" are used on the loop's thread only, the others are thread-safe.

    /// Jobs from other threads, taken over at the start of a turn.
    private let inbox = Mutex<[UnownedJob]>([])
    private let wakeUp: WakeUp
    /// The loop's thread as a number, 0 before `run`.
    private let thread = Atomic<UInt>(0)

    var epoll: Epoll  // loop
    let registrations = RegistrationTable()  // loop
    var timers = TimerHeap()  // loop
    private var jobs = TurnQueue<UnownedJob>()  // loop
    /// Handlers that continue in the next turn, one queue for each `TurnPart`.
    var queue = TurnQueue<any ReadinessHandler>()  // loop
    var longQueue = TurnQueue<any ReadinessHandler>()  // loop
    var handshakeQueue = TurnQueue<any ReadinessHandler>()  // loop
    /// Whether a wait with the trait `unfinished` may be under way.
    var mayBeUnfinished = false  // loop
    private var isStopping = false  // loop

    // Atomics although only the loop writes them: each request reads them several times, and Swift guards a plain field of a
    // class against overlapping accesses at run time.
    private let turnBegan = Atomic<UInt64>(MonotonicTime.now.nanoseconds)
    private let eventsArrived = Atomic<UInt64>(MonotonicTime.now.nanoseconds)
    let stage = Atomic(Stage.running.rawValue)
    /// Whether a queue has a handler.
    let hasQueued = Atomic<Bool>(false)
    /// Set by steps that take longer than a short request, so that the loop checks the clock before it begins the next one.
    let hasWorkedLong = Atomic<Bool>(false)
    /// Called before each wait for events, to hand over what the turn has gathered.
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

    /// When the current turn began: cheaper than the clock, and good enough for deadlines.
    package var now: MonotonicTime { MonotonicTime(nanoseconds: turnBegan.load(ordering: .relaxed)) }
    /// When the events that are being delivered were received; with many events, some turns before `now`.
    package var lastWait: MonotonicTime { MonotonicTime(nanoseconds: eventsArrived.load(ordering: .relaxed)) }
    /// Whether the loop has stopped accepting: requests on open connections are answered, and the connections then closed.
    package var isDraining: Bool { hasReached(.draining) }
    /// Whether idle waits end at once: received requests are answered, and no new ones awaited.
    var hasEndedIdleWaits: Bool { hasReached(.closingIdle) }
    /// Whether every wait ends at once.
    package var isAbandoned: Bool { hasReached(.abandoned) }

    /// How far the stop has come.
    enum Stage: UInt8 {
        case running, draining, closingIdle, abandoned
    }

    @inline(__always)
    private func hasReached(_ stage: Stage) -> Bool { self.stage.load(ordering: .relaxed) >= stage.rawValue }

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
        // One signal is enough: the loop takes all jobs each time it wakes.
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
        // Events of the last wait that are still to be delivered. Not a field, which Swift would guard at run time.
        var events = 0..<0
        while !isStopping {
            let isDelivered = events.isEmpty
            if isDelivered { events = 0..<epoll.wait(timeoutInMilliseconds: timeoutInMilliseconds) }
            let began = MonotonicTime.now.nanoseconds
            turnBegan.store(began, ordering: .relaxed)
            if isDelivered { eventsArrived.store(began, ordering: .relaxed) }
            // Before the events, so that work from another thread precedes a request that a client sent after it.
            takeOverInbox()
            let hasWork = !jobs.isEmpty || hasQueued.load(ordering: .relaxed)
            if !jobs.isEmpty { runJobs() }
            if hasQueued.load(ordering: .relaxed) { runQueues() }
            // Jobs and handlers have had their own time, and use up none of the events'.
            deliver(&events, since: hasWork ? .now : now)
            // A wait whose event is still to be delivered has not timed out.
            if events.isEmpty { fireTimers() }
            endOfTurn()
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
            for job in arrived { jobs.append(job) }
            arrived.removeAll(keepingCapacity: true)
        }
    }

    /// Runs the jobs that are ready now, as many as the budget allows.
    ///
    /// Jobs that become ready meanwhile wait for the next turn, so that a task that always has work cannot keep the loop from
    /// its descriptors.
    private func runJobs() {
        var left = jobs.count
        let executor = unsafe asUnownedTaskExecutor()
        // Usually there is one job, for which the clock need not be read.
        let budget = left > 1 ? TurnBudget(began: .now) : nil
        while left > 0, let job = jobs.popFirst() {
            left -= 1
            unsafe job.runSynchronously(on: executor)
            if let budget, budget.isSpent { return }
        }
    }

    /// Delivers the events of the last wait, as many as the budget allows.
    private func deliver(_ left: inout Range<Int>, since began: MonotonicTime) {
        let budget = TurnBudget(began: began)
        for index in left {
            let (events, tag) = epoll.event(at: index)
            if tag != Self.wakeUpTag { deliver(events, to: RegistrationID(tag: tag)) }
            guard index % Self.eventsPerLook == Self.eventsPerLook - 1 || takeHasWorkedLong() else { continue }
            if budget.isSpent {
                left = (index + 1)..<left.upperBound
                return
            }
        }
        left = 0..<0
    }

    /// Events of short requests between two readings of the clock, each of which costs a hundredth of a request.
    private static let eventsPerLook = 16

    private var timeoutInMilliseconds: Int32 {
        if !jobs.isEmpty || hasQueued.load(ordering: .relaxed) { return 0 }
        let earliest = timers.earliest
        if earliest == .never { return -1 }
        // Rounded up: to wake too early would mean a second wait.
        let milliseconds = ((earliest - now).count + 999_999) / 1_000_000
        return Int32(clamping: milliseconds)
    }
}

/// An object that a loop calls on its thread when a wait is over.
///
/// A suspended task would cost a kilobyte and some thousand instructions for each wait.
package protocol ReadinessHandler: AnyObject {
    /// Ends a wait; called once for each wait that has begun.
    func wake(_ reason: WakeReason)

    /// Continues queued work; called once for each `EventLoop.enqueue`.
    func resume()
}

/// A task that waits for a descriptor.
final class WaitingTask: ReadinessHandler {
    private let waiter: Waiter<WakeReason>

    init(_ waiter: Waiter<WakeReason>) {
        self.waiter = waiter
    }

    func wake(_ reason: WakeReason) { waiter.resume(returning: reason) }
    func resume() {}
}

/// The outcome of reading from a stream.
package enum ReceiveResult: Equatable {
    /// This many bytes, at least one, were appended.
    case received(Int)
    /// Nothing has arrived yet: wait until the stream is readable.
    case wouldBlock
    /// The peer has closed its sending side, and everything that it sent was read.
    case endOfInput
}

/// An eventfd that ends the wait of a loop; any thread may signal it.
struct WakeUp: ~Copyable, Sendable {
    let descriptor: FileDescriptor

    init() throws(SystemError) {
        let number = eventfd(0, Int32(EFD_CLOEXEC) | Int32(EFD_NONBLOCK))
        guard number >= 0 else { throw SystemError.last("eventfd") }
        descriptor = FileDescriptor(owning: number)
    }

    func signal() {
        var one: UInt64 = 1
        // It fails only if the counter is full, and then the loop wakes anyway.
        _ = unsafe write(descriptor.number, &one, MemoryLayout<UInt64>.size)
    }
}
