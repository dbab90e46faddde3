import Synchronization
import System

extension EventLoop {
    /// Starts to watch a descriptor for both directions, edge-triggered, and assumes that it is ready for both.
    func register(_ descriptor: Int32) throws(SystemError) -> RegistrationID {
        try register(descriptor, events: [.readable, .writable, .endOfInput, .edgeTriggered])
    }

    /// Starts to watch a listening socket that other loops watch too: a connection wakes one of them.
    func registerShared(_ descriptor: Int32) throws(SystemError) -> RegistrationID {
        let id = try register(descriptor, events: [.readable, .edgeTriggered, .exclusive])
        registrations[Int(descriptor)].isShared = true
        return id
    }

    /// Starts to watch a descriptor for reading, with an event in each turn in which it is readable.
    func registerLevelTriggered(_ descriptor: Int32) throws(SystemError) -> RegistrationID {
        try register(descriptor, events: .readable)
    }

    private func register(_ descriptor: Int32, events: Epoll.Events) throws(SystemError) -> RegistrationID {
        assertCurrent()
        let row = Int(descriptor)
        registrations.reach(row)
        let id = RegistrationID(descriptor: descriptor, generation: registrations[row].generation)
        try epoll.add(descriptor, events: events, tag: id.tag)
        registrations[row].readiness = [.readable, .writable]
        return id
    }

    /// Stops watching.
    ///
    /// No wait may be under way; events that have already arrived are dropped.
    ///
    /// - Parameter isShared: Whether the descriptor stays open, so that epoll has to be told.
    func deregister(_ id: RegistrationID, isShared: Bool = false) {
        assertCurrent()
        let row = Int(id.descriptor)
        precondition(registrations[row].generation == id.generation, "a registration ends once")
        precondition(registrations[row].waiter == nil, "a registration ends after its last wait")
        if isShared { epoll.remove(id.descriptor) }
        // The row keeps its timer entry for the next registration, so that short connections leave none behind in the heap.
        registrations[row] = Registration(generation: id.generation &+ 1, timer: registrations[row].timer)
    }

    /// Records that a call would have blocked, so that the next wait waits for an event.
    func markBlocked(_ direction: Epoll.Events, of id: RegistrationID) {
        registrations[Int(id.descriptor)].readiness.subtract(direction)
    }

    /// Records that a read has emptied the socket, as it filled less than its buffer (epoll(7)): another would find nothing.
    func markDrained(_ id: RegistrationID) {
        registrations[Int(id.descriptor)].markDrained()
    }

    func isReady(_ direction: Epoll.Events, of id: RegistrationID) -> Bool {
        !registrations[Int(id.descriptor)].readiness.isDisjoint(with: direction)
    }

    /// Suspends until the descriptor may be ready or the deadline has passed.
    ///
    /// - Parameters:
    ///   - direction: `readable` or `writable`; if empty, no event on the descriptor ends the wait.
    ///   - id: A registration of this loop, on which there is no other wait.
    ///   - deadline: Kept to the millisecond, never early.
    ///   - traits: When it may end early.
    func wait(
        for direction: Epoll.Events, of id: RegistrationID, until deadline: MonotonicTime, _ traits: WaitTraits
    ) async -> WakeReason {
        await Waiter.suspend { waiter in
            let reason = wait(
                for: direction, of: id, until: deadline, traits, calling: WaitingTask(waiter))
            if let reason { waiter.resume(returning: reason) }
        }
    }

    /// Begins the same wait for a handler, which is called when the wait ends.
    ///
    /// - Returns: The reason why there is no wait, in which case the handler is not called; nil if the wait has begun.
    func wait(
        for direction: Epoll.Events, of id: RegistrationID, until deadline: MonotonicTime, _ traits: WaitTraits,
        calling handler: any ReadinessHandler
    ) -> WakeReason? {
        assertCurrent()
        if isAbandoned { return .abandoned }
        if traits.contains(.idle) && hasEndedIdleWaits { return isReady(direction, of: id) ? .ready : .draining }
        let row = Int(id.descriptor)
        guard
            let needsTimer = registrations[row]
                .wait(handler, for: direction, from: now, until: deadline, traits)
        else { return .ready }
        if traits.contains(.unfinished) { mayBeUnfinished = true }
        // A timer that fires too early compares with the deadline again: so postponing a deadline, as nearly every request
        // does, costs nothing here.
        if needsTimer { timers.insert(TimerHeap.Entry(deadline: deadline, target: .row(row))) }
        return nil
    }

    /// Ends the wait on a descriptor, if there is one, without waking the waiter.
    func endWait(of id: RegistrationID) {
        assertCurrent()
        _ = registrations[Int(id.descriptor)].takeWaiter()
    }

    func deliver(_ events: Epoll.Events, to id: RegistrationID) {
        registrations[Int(id.descriptor)].deliver(events, generation: id.generation)?.wake(.ready)
    }

    /// Ends the wait on a row, if there is one.
    func wake(_ row: Int, _ reason: WakeReason) {
        registrations[row].takeWaiter()?.wake(reason)
    }

    /// Ends those waits of connections with a trait that have lasted longest: an eighth of them, but at least 1 and at most 32, as
    /// this looks at every descriptor.
    ///
    /// - Returns: How many. The connections may end only in the next turn.
    package func displace(_ trait: WaitTraits, because reason: WakeReason = .displaced) -> Int {
        assertCurrent()
        guard trait != .unfinished || mayBeUnfinished else { return 0 }
        var waits = TimerHeap()
        for row in registrations.indices where registrations[row].isDisplaceable(trait) {
            // Not by their deadlines: the wait for a handshake has a shorter limit than that between two requests.
            waits.insert(TimerHeap.Entry(deadline: registrations[row].began, target: .row(row)))
        }
        if waits.count == 0, trait == .unfinished { mayBeUnfinished = false }
        let count = min(waits.count, max(1, min(32, waits.count / 8)))
        for _ in 0..<count {
            if case .row(let row) = waits.popDue(at: .never)?.target {
                wake(row, reason)
            }
        }
        return count
    }

    // MARK: - Stopping

    /// Stops accepting, and closes connections with their next answer, on the loop's thread.
    package func beginDraining() { enter(.draining) { $0.isShared } }

    /// Ends idle waits, the present and all later ones, on the loop's thread; begins draining if that has not begun.
    package func endIdleWaits() { enter(.closingIdle) { $0.isShared || $0.traits.contains(.idle) } }

    /// Ends all waits for descriptors, the present and all later ones, on the loop's thread.
    package func abandon() { enter(.abandoned) { _ in true } }

    private func enter(_ stage: Stage, ending isOver: @escaping @Sendable (Registration) -> Bool) {
        execute { [self] in
            self.stage.store(max(self.stage.load(ordering: .relaxed), stage.rawValue), ordering: .relaxed)
            for row in registrations.indices where isOver(registrations[row]) {
                wake(row, stage == .abandoned ? .abandoned : .draining)
            }
        }
    }
}
