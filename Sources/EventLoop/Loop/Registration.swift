internal import System

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

/// What can be done with a descriptor without blocking, as far as epoll has reported.
package struct Readiness: OptionSet, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    package static let readable = Readiness(rawValue: 1)
    package static let writable = Readiness(rawValue: 2)
    /// The peer sends no more: reading finds that out without blocking, so `readable` stays set.
    package static let endOfInput = Readiness(rawValue: 4)
    /// The connection is lost in both directions.
    package static let hangUp = Readiness(rawValue: 8)
}

/// Why a wait is over.
package enum WakeReason: Sendable {
    /// The call that would have blocked can be tried again.
    case ready
    /// The deadline passed first.
    case timedOut
    /// The wait was idle, and the loop ends idle waits.
    case draining
    /// The loop ends all waits.
    case abandoned
}

/// A descriptor's row in its loop's table.
struct Registration {
    var generation: UInt32 = 0
    var readiness: Readiness = []
    var interest: Readiness = []
    /// A listening socket, which other loops watch as well.
    var isShared = false
    /// Whether the wait may end without loss, for example between two requests.
    var isIdle = false
    var waiter: ReadinessWaiter?
    /// Whether a handler waits, and may be told at any time that its wait is over.
    var isIdleHandler: Bool {
        guard isIdle, case .handler = waiter else { return false }
        return true
    }
    var deadline = MonotonicTime.never
    /// The earliest entry that the timer heap holds for this row.
    var timer = MonotonicTime.never

    /// Records the waiter; returns whether a timer entry must be made for the deadline.
    mutating func wait(
        _ waiter: ReadinessWaiter, for direction: Readiness, until deadline: MonotonicTime, isIdle: Bool
    ) -> Bool {
        precondition(self.waiter == nil, "a descriptor has one wait at a time")
        self.waiter = waiter
        interest = direction
        self.isIdle = isIdle
        self.deadline = deadline
        guard deadline < timer else { return false }
        timer = deadline
        return true
    }

    /// Calls `wait`, unless the descriptor is ready already or `mayBegin` is false.
    mutating func waitUnlessReady(
        _ waiter: ReadinessWaiter, for direction: Readiness, until deadline: MonotonicTime, isIdle: Bool,
        mayBegin: Bool
    ) -> (isReady: Bool, needsTimer: Bool) {
        if !readiness.isDisjoint(with: direction) { return (true, false) }
        guard mayBegin else { return (false, false) }
        return (false, wait(waiter, for: direction, until: deadline, isIdle: isIdle))
    }

    /// Records what epoll reports; removes and returns the waiter if it waited for that.
    mutating func deliver(_ events: Epoll.Events, generation: UInt32) -> ReadinessWaiter? {
        guard generation == self.generation else { return nil }
        var ready: Readiness = []
        if events.contains(.readable) { ready.insert(.readable) }
        if events.contains(.writable) { ready.insert(.writable) }
        if events.contains(.endOfInput) { ready.formUnion([.readable, .endOfInput]) }
        // Both directions then fail at once, and the failing call says why.
        if !events.isDisjoint(with: [.error, .hangUp]) {
            ready.formUnion([.readable, .writable, .endOfInput, .hangUp])
        }
        readiness.formUnion(ready)
        return ready.isDisjoint(with: interest) ? nil : takeWaiter()
    }

    mutating func takeWaiter() -> ReadinessWaiter? {
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
