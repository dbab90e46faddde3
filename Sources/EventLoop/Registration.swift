import CLinux
import Glibc
import System

/// Identifies one registration of a descriptor with a loop.
///
/// The kernel gives a closed descriptor's number to the next socket, perhaps within one batch of events: the generation
/// tells the two apart.
package struct RegistrationID: Hashable, Sendable {
    let descriptor: Int32
    let generation: UInt32

    init(descriptor: Int32, generation: UInt32) {
        self.descriptor = descriptor
        self.generation = generation
    }

    init(tag: UInt64) {
        descriptor = Int32(truncatingIfNeeded: tag)
        generation = UInt32(truncatingIfNeeded: tag >> 32)
    }

    /// The 64 bits that epoll hands back with an event.
    var tag: UInt64 { UInt64(generation) << 32 | UInt64(UInt32(bitPattern: descriptor)) }
}

/// Why a wait is over.
package enum WakeReason: Sendable {
    /// The call that would have blocked can be tried again.
    case ready
    /// The deadline passed first.
    case timedOut
    /// The wait was idle, and the loop ends idle waits.
    case draining
    /// A new connection needs the connection's place: it ends unless something has arrived.
    case displaced
    /// The loop ends all waits, or others need the connection's memory: it ends at once.
    case abandoned
}

/// What kind of wait it is, which decides when the loop may end it early.
package struct WaitTraits: OptionSet, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// It may end without loss, for example between two requests.
    package static let idle = WaitTraits(rawValue: 1)
    /// No answer was sent yet, or the last one was: closed first when there are too many connections.
    package static let expendable = WaitTraits(rawValue: 2)
    /// The client has not sent all of a request, or not read all of an answer: closed first when memory is short, and last when there
    /// are too many connections.
    package static let unfinished = WaitTraits(rawValue: 4)
}

/// A descriptor's row in its loop's table.
struct Registration {
    var generation: UInt32 = 0
    /// What can be done without blocking, as far as epoll has reported.
    var readiness: Epoll.Events = []
    var interest: Epoll.Events = []
    /// Whether other loops watch the descriptor too, which is that of a listening socket.
    var isShared = false
    /// Of the wait that is under way, or of the last one.
    var traits: WaitTraits = []
    var waiter: (any ReadinessHandler)?
    /// When the wait began.
    var began = MonotonicTime.never
    var deadline = MonotonicTime.never
    /// The earliest entry that the timer heap holds for this row.
    var timer = MonotonicTime.never

    /// Records the waiter, unless the descriptor is ready for what it waits for.
    ///
    /// - Returns: Whether a timer entry must be made for the deadline; nil if nothing was recorded.
    mutating func wait(
        _ waiter: any ReadinessHandler, for direction: Epoll.Events, from began: MonotonicTime,
        until deadline: MonotonicTime, _ traits: WaitTraits
    ) -> Bool? {
        guard readiness.isDisjoint(with: direction) else { return nil }
        precondition(self.waiter == nil, "a descriptor has one wait at a time")
        self.waiter = waiter
        interest = direction
        self.traits = traits
        self.began = began
        self.deadline = deadline
        guard deadline < timer else { return false }
        timer = deadline
        return true
    }

    /// Records what epoll reports; removes and returns the waiter if it waited for that.
    mutating func deliver(_ events: Epoll.Events, generation: UInt32) -> (any ReadinessHandler)? {
        guard generation == self.generation else { return nil }
        var ready = events
        // Reading then finds out without blocking that there is no more.
        if events.contains(.endOfInput) { ready.insert(.readable) }
        // Both directions then fail at once, and the failing call says why.
        if !events.isDisjoint(with: [.error, .hangUp]) {
            ready.formUnion([.readable, .writable, .endOfInput, .hangUp])
        }
        readiness.formUnion(ready)
        return ready.isDisjoint(with: interest) ? nil : takeWaiter()
    }

    /// Whether a wait with this trait is under way on a connection.
    func isDisplaceable(_ trait: WaitTraits) -> Bool { traits.contains(trait) && waiter != nil && !isShared }

    mutating func takeWaiter() -> (any ReadinessHandler)? {
        interest = []
        return waiter.take()
    }

    /// Records that the socket is empty.
    ///
    /// After the peer's end of input there is no further event, so reading continues.
    mutating func markDrained() {
        if !readiness.contains(.endOfInput) { readiness.remove(.readable) }
    }
}

/// A loop's registrations, by descriptor.
///
/// Allocates its own memory: Swift guards every change of an array in a class against overlapping accesses at run time, and a
/// request changes its row several times. Here accesses cannot overlap, as code that changes a row calls nothing outside it.
///
/// Belongs to its loop's thread.
@safe final class RegistrationTable {
    /// All rows are initialized.
    private var rows: UnsafeMutableBufferPointer<Registration>

    init() {
        unsafe rows = UnsafeMutableBufferPointer(start: nil, count: 0)
    }

    deinit {
        unsafe rows.deinitialize().deallocate()
    }

    var indices: Range<Int> { unsafe rows.indices }

    subscript(row: Int) -> Registration {
        @inline(__always) _read {
            precondition(indices.contains(row), "a row of the table")
            yield unsafe rows[row]
        }
        @inline(__always) _modify {
            precondition(indices.contains(row), "a row of the table")
            yield unsafe &rows[row]
        }
    }

    /// Grows the table up to a row; must not be called while a row is being changed.
    func reach(_ row: Int) {
        guard row >= indices.count else { return }
        let larger = unsafe UnsafeMutableBufferPointer<Registration>
            .allocate(capacity: max(64, row + 1, 2 * rows.count))
        let moved = unsafe larger.moveInitialize(fromContentsOf: rows)
        unsafe larger[moved...].initialize(repeating: Registration())
        unsafe rows.deallocate()
        unsafe rows = larger
    }
}

/// A suspended task, which is resumed exactly once.
///
/// Makes `UnsafeContinuation` safe: the loop's tables own each waiter and remove it before they resume it. That is the check
/// for which `CheckedContinuation` would allocate memory at each wait.
@safe struct Waiter<Value: Sendable> {
    private let continuation: UnsafeContinuation<Value, Never>

    /// Suspends the calling task and hands its waiter to `body`, which keeps it.
    static func suspend(_ body: (Waiter) -> Void) async -> Value {
        unsafe await withUnsafeContinuation { continuation in
            body(unsafe Waiter(continuation: continuation))
        }
    }

    func resume(returning value: Value) {
        unsafe continuation.resume(returning: value)
    }
}

/// An epoll instance and the one buffer its events are read into.
///
/// Each registration has 64 bits of the caller's choice, which come back with its events.
@safe struct Epoll: ~Copyable {
    /// What epoll reports of a descriptor.
    struct Events: OptionSet {
        let rawValue: UInt32

        static let readable = Events(rawValue: CLINUX_EPOLLIN)
        static let writable = Events(rawValue: CLINUX_EPOLLOUT)
        /// The peer has closed its sending side; `readable` then stays set.
        static let endOfInput = Events(rawValue: CLINUX_EPOLLRDHUP)
        static let error = Events(rawValue: CLINUX_EPOLLERR)
        /// The connection is lost in both directions.
        static let hangUp = Events(rawValue: CLINUX_EPOLLHUP)
        /// Report changes only, not states (epoll(7)).
        static let edgeTriggered = Events(rawValue: CLINUX_EPOLLET)
        /// Wake one of the epoll instances that share the descriptor, not all (epoll_ctl(2)).
        static let exclusive = Events(rawValue: CLINUX_EPOLLEXCLUSIVE)
    }

    private let descriptor: FileDescriptor
    // epoll_event imports as a type that may hold a pointer; only its 64-bit number is used here.
    private var buffer: [epoll_event]

    init() throws(SystemError) {
        let number = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard number >= 0 else { throw SystemError.last("epoll_create1") }
        descriptor = FileDescriptor(owning: number)
        unsafe buffer = Array(repeating: unsafe epoll_event(), count: 256)
    }

    func add(_ target: Int32, events: Events, tag: UInt64) throws(SystemError) {
        var event = unsafe epoll_event()
        unsafe event.events = events.rawValue
        unsafe event.data.u64 = tag
        guard unsafe epoll_ctl(descriptor.number, EPOLL_CTL_ADD, target, &event) == 0 else {
            throw SystemError.last("epoll_ctl")
        }
    }

    /// Needed only for descriptors that stay open: closing a descriptor removes it too.
    func remove(_ target: Int32) {
        _ = epoll_ctl(descriptor.number, EPOLL_CTL_DEL, target, nil)
    }

    /// Waits for events and returns their number: 0 after the timeout, or after a signal if there are none.
    ///
    /// - Parameter timeoutInMilliseconds: 0 returns at once, -1 waits without limit.
    mutating func wait(timeoutInMilliseconds: Int32) -> Int {
        if let count = waitOnce(timeoutInMilliseconds) { return count }
        // A signal ends the wait even if events have arrived, but for the caller 0 means that there are none.
        return waitOnce(0) ?? 0
    }

    /// Nil after a signal.
    private mutating func waitOnce(_ timeoutInMilliseconds: Int32) -> Int? {
        let capacity = unsafe Int32(buffer.count)
        let count = unsafe epoll_wait(descriptor.number, &buffer, capacity, timeoutInMilliseconds)
        if count < 0 {
            // Any other error would mean that this type broke its own guarantees about the descriptor and the buffer.
            precondition(errno == EINTR, "epoll_wait failed")
            return nil
        }
        return Int(count)
    }

    /// The event at an index below the last count that `wait` returned.
    func event(at index: Int) -> (events: Events, tag: UInt64) {
        let event = unsafe buffer[index]
        return unsafe (Events(rawValue: event.events), event.data.u64)
    }
}
