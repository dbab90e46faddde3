internal import Synchronization
internal import System

extension EventLoop {
    /// Starts to watch a descriptor for both directions, edge-triggered, and takes it to be ready for both.
    func register(_ descriptor: Int32) throws(SystemError) -> RegistrationID {
        try register(descriptor, events: [.readable, .writable, .endOfInput, .edgeTriggered])
    }

    /// Starts to watch a listening socket that other loops watch as well: one of them wakes for a connection.
    func registerShared(_ descriptor: Int32) throws(SystemError) -> RegistrationID {
        let id = try register(descriptor, events: [.readable, .edgeTriggered, .exclusive])
        registrations[Int(descriptor)].isShared = true
        return id
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
    /// Nobody may be waiting; events that are already on their way are dropped.
    ///
    /// - Parameter isShared: the descriptor stays open, so that epoll has to be told.
    func deregister(_ id: RegistrationID, isShared: Bool = false) {
        assertCurrent()
        let row = Int(id.descriptor)
        precondition(registrations[row].generation == id.generation, "a registration ends once")
        precondition(registrations[row].waiter == nil, "a registration ends after its last wait")
        if isShared { epoll.remove(id.descriptor) }
        // The timer entry stays for whoever has the row next: short connections leave no trail in the heap.
        registrations[row] = Registration(generation: id.generation &+ 1, timer: registrations[row].timer)
    }

    /// Notes that a call would have blocked, so that the next wait is one for news.
    func markBlocked(_ direction: Readiness, of id: RegistrationID) {
        registrations[Int(id.descriptor)].readiness.subtract(direction)
    }

    /// A read that filled less than the room it had emptied the socket (epoll(7)): with edge-triggered events a further
    /// one could only find nothing.
    func markDrained(_ id: RegistrationID) {
        registrations[Int(id.descriptor)].markDrained()
    }

    func isReady(_ direction: Readiness, of id: RegistrationID) -> Bool {
        !registrations[Int(id.descriptor)].readiness.isDisjoint(with: direction)
    }

    /// Suspends until the descriptor may be ready or the deadline has passed.
    ///
    /// - Parameters:
    ///   - direction: `readable` or `writable`.
    ///   - id: A registration of this loop on which nobody else waits.
    ///   - deadline: Kept to the millisecond, never early.
    ///   - isIdle: Whether `endIdleWaits` ends the wait.
    func wait(
        for direction: Readiness, of id: RegistrationID, until deadline: MonotonicTime, isIdle: Bool
    ) async -> WakeReason {
        if let reason = outcome(of: direction, id, isIdle: isIdle) { return reason }
        return await Waiter.suspend { begin(.task($0), for: direction, of: id, until: deadline, isIdle: isIdle) }
    }

    /// The same for a handler, which is called when the wait is over.
    ///
    /// - Returns: What there is no need to wait for; the handler is then not called.
    func wait(
        for direction: Readiness, of id: RegistrationID, until deadline: MonotonicTime, isIdle: Bool,
        calling handler: any ReadinessHandler
    ) -> WakeReason? {
        assertCurrent()
        if isAbandoned { return .abandoned }
        let row = Int(id.descriptor)
        let (isReady, needsTimer) = registrations[row].waitUnlessReady(
            .handler(handler), for: direction, until: deadline, isIdle: isIdle, mayBegin: !(isIdle && hasEndedIdleWaits)
        )
        if needsTimer { timers.insert(TimerHeap.Entry(deadline: deadline, target: .row(row))) }
        if isReady { return .ready }
        return isIdle && hasEndedIdleWaits ? .draining : nil
    }

    /// Ends the wait on a descriptor, if there is one, without waking whoever waits.
    func endWait(of id: RegistrationID) {
        assertCurrent()
        _ = registrations[Int(id.descriptor)].takeWaiter()
    }

    /// What a wait comes to that has not begun; nil when it has to.
    private func outcome(of direction: Readiness, _ id: RegistrationID, isIdle: Bool) -> WakeReason? {
        assertCurrent()
        if isAbandoned { return .abandoned }
        if isReady(direction, of: id) { return .ready }
        return isIdle && hasEndedIdleWaits ? .draining : nil
    }

    private func begin(
        _ waiter: ReadinessWaiter, for direction: Readiness, of id: RegistrationID, until deadline: MonotonicTime,
        isIdle: Bool
    ) {
        let row = Int(id.descriptor)
        // A timer that fires too early looks at the deadline again: moving a deadline on costs nothing here, and that is
        // what nearly every request does.
        if registrations[row].wait(waiter, for: direction, until: deadline, isIdle: isIdle) {
            timers.insert(TimerHeap.Entry(deadline: deadline, target: .row(row)))
        }
    }

    func deliver(_ events: Epoll.Events, to id: RegistrationID) {
        registrations[Int(id.descriptor)].deliver(events, generation: id.generation)?.wake(.ready)
    }

    /// Resumes whoever waits on a row, if anybody does.
    func wake(_ row: Int, _ reason: WakeReason) {
        registrations[row].takeWaiter()?.wake(reason)
    }

    // MARK: - Stopping

    /// Has nothing more accepted and connections closed with their next answer, on the loop's thread.
    package func beginDraining() {
        execute {
            self.draining.store(true, ordering: .relaxed)
            for row in self.registrations.indices where self.registrations[row].isShared { self.wake(row, .draining) }
        }
    }

    /// Ends idle waits, now and from now on, on the loop's thread; begins draining, if that has not begun.
    package func endIdleWaits() {
        beginDraining()
        execute {
            self.idleWaitsEnded.store(true, ordering: .relaxed)
            for row in self.registrations.indices where self.registrations[row].isIdle { self.wake(row, .draining) }
        }
    }

    /// Ends all waits for descriptors, now and from now on, on the loop's thread.
    package func abandon() {
        execute {
            self.draining.store(true, ordering: .relaxed)
            self.abandoned.store(true, ordering: .relaxed)
            for row in self.registrations.indices { self.wake(row, .abandoned) }
        }
    }
}
