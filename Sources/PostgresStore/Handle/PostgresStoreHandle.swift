#if PostgreSQL
import Metrics
import Synchronization
import System
import TokenStore

/// One loop's connections to the database, and the operations that it has gathered for them.
///
/// The operations of a turn are sent together at its end, in pipeline mode, without waiting; `proceed` takes the answers. Reads and
/// writes have separate connections, as a write waits for a standby. A connection sends its next writes when the previous ones are
/// answered, so the more writes there are, the more share a commit.
final class PostgresStoreHandle: OperationGatherer, @unchecked Sendable {
    // Unchecked: it belongs to its loop's thread; others use it only through `deliver`, which runs closures on that thread.

    let state: PostgresState
    let rows: RowAccess
    let options: PostgresOptions
    let finder: PrimaryFinder
    let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    let ready: ReadinessSet
    let slots: [ConnectionSlot]
    /// The slots before this one are for reads, the others for writes; a single slot is for both.
    private let firstWritingSlot: Int
    /// Operations that the timer will send again.
    var delayed: [Operation] = []
    private var operationCount: UInt64 = 0
    /// What is done once the turn's operations have been sent.
    var atEndOfTurn: [() -> Void] = []

    init(
        _ state: PostgresState, _ options: PostgresOptions, _ finder: PrimaryFinder,
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(SystemError) {
        self.state = state
        self.options = options
        self.finder = finder
        self.deliver = deliver
        rows = RowAccess(state, timeout: options.timeout)
        ready = try ReadinessSet()
        let count = max(1, options.connections)
        slots = (0..<count).map { _ in ConnectionSlot() }
        firstWritingSlot = count / 2
        state.count { $0.remote.connections.wanted += count }
        for slot in slots.indices { order(slot) }
        state.watchRefusals { [weak self, deliver] server, reason in
            deliver { [weak self] in self?.leave(server, reason) }
        }
    }

    var senderRows: RowAccess { rows }

    var descriptor: Int32? { ready.descriptor }

    // MARK: - Gathering

    func forSender<Value>(_ completion: Completion<Value>) -> Completion<Value> { completion }

    func gather(_ operation: Operation) {
        if operation.number == 0 {
            operationCount += 1
            operation.number = operationCount
        }
        let candidates = operation.isWrite ? firstWritingSlot..<slots.count : 0..<max(1, firstWritingSlot)
        // Chooses the slot with the fewest operations; those without a connection come last.
        var (best, least) = (candidates.lowerBound, Int.max)
        for index in candidates {
            let slot = slots[index]
            let load = slot.queue.count + (slot.pipeline?.operationCount ?? 1 << 20)
            if load < least { (best, least) = (index, load) }
        }
        slots[best].queue.append(operation)
    }

    // MARK: - Sending

    func flush() {
        var hasSent = false
        for index in slots.indices where !slots[index].queue.isEmpty {
            send(index)
            hasSent = true
        }
        if hasSent { renewProof() }
        let work = atEndOfTurn
        atEndOfTurn = []
        for step in work { step() }
    }

    private func send(_ index: Int) {
        if let pipeline = slots[index].pipeline {
            do {
                try send(on: pipeline, index)
            } catch {
                lose(index, error)
            }
        }
        setTimer()
    }

    private func send(on pipeline: Pipeline, _ index: Int) throws(PostgresError) {
        let (slot, now) = (slots[index], SystemUptime.moment)
        // This process may have been paused, or the machine suspended, for longer than the rows of removed tokens are kept.
        giveUpWaiting(slot)
        // While the server works on a group with writes, those of the next one gather. If that one were sent earlier, it would have
        // fewer writes, and hardly begin sooner.
        var hasWrites = pipeline.groups.contains(where: \.isWrite)
        var left = slot.queue[...]
        while !left.isEmpty, pipeline.operationCount < Grouping.operationsUnderWay {
            guard !hasWrites || !left.contains(where: \.isWrite) else { break }
            let group = Grouping.next(from: &left)
            slot.queue = Array(left)
            if group.contains(where: \.isWrite) {
                hasWrites = true
                state.count { $0.groupSizes.add(UInt64(group.count)) }
            }
            try pipeline.send(group, at: now)
        }
        try flush(pipeline, index)
    }

    private func flush(_ pipeline: Pipeline, _ index: Int) throws(PostgresError) {
        let isForWriting = try !pipeline.connection.flush()
        guard isForWriting != pipeline.awaitsWriting else { return }
        pipeline.awaitsWriting = isForWriting
        do {
            try ready.change(pipeline.connection.socket, tag: UInt64(index), isForWriting: isForWriting)
        } catch {
            throw .connection("\(error)")
        }
    }

    // MARK: - Receiving

    func proceed() {
        let (tags, isTimeUp) = ready.take()
        for tag in tags { receive(Int(tag)) }
        if isTimeUp { lookAtTime() }
    }

    private func receive(_ index: Int) {
        guard let pipeline = slots[index].pipeline else { return }
        var ended: [Pipeline.Group] = []
        var failure: PostgresError?
        do {
            try pipeline.receive(&ended)
            // The server gets the writes that have gathered meanwhile, before the ended ones are given their outcomes here.
            if ended.contains(where: \.isWrite) {
                try send(on: pipeline, index)
            } else {
                try flush(pipeline, index)
            }
        } catch {
            failure = error
        }
        for group in ended {
            do {
                try end(group, of: pipeline)
            } catch {
                failure = failure ?? error
            }
        }
        if let failure { lose(index, failure) }
        releaseHeld()
        setTimer()
    }

    /// Gives the operations of an ended transaction their outcomes, or holds them until there is a proof.
    private func end(_ group: Pipeline.Group, of pipeline: Pipeline) throws(PostgresError) {
        let (now, address) = (SystemUptime.moment, pipeline.ready.server.address)
        state.count { counts in
            counts.noteRoundTrip(group.kind, now - group.sentAt)
            guard group.isFence else { return }
            if group.hasProven { counts.noteProof(begunAt: group.sentAt) } else { counts.remote.failedProofs += 1 }
        }
        if let failure = group.failure { return try repeatOrFail(group, failure, at: address) }
        guard !group.isFence else { return }
        if let warning = group.warning, group.isWrite {
            // The write is on this server, but perhaps on no other one.
            let fault = StoreFault(
                """
                PostgreSQL at \(address) has committed the write with a warning, so it may not be on a second machine: \(warning)
                """, mayRetry: true)
            for operation in group.operations {
                state.count { $0.remote.unacknowledged += 1 }
                fail(operation, fault)
            }
        } else if pipeline.isProven(group, answeredAt: now) {
            succeed(group)
        } else {
            pipeline.held.append((group, now))
            state.count { $0.remote.heldReads += UInt64(group.operations.count) }
        }
    }

    private func succeed(_ group: Pipeline.Group) {
        state.noteSuccess(isWrite: group.isWrite)
        // In the order of the requests.
        for operation in group.operations.sorted(by: { $0.number < $1.number }) where !operation.isOver {
            if operation.finish() { complete(operation) {} } else { gatherAgain(operation) }
        }
    }

    // MARK: - Proofs

    /// Asks for another proof before the last one is too old.
    private func renewProof() {
        let now = SystemUptime.moment
        for slot in slots {
            guard let pipeline = slot.pipeline, pipeline.ready.needsProof, pipeline.proof.takesRenewal(at: now)
            else {
                continue
            }
            sendFence(to: pipeline.ready.server)
        }
    }

    /// Sends the commit of a proof, on a connection for writes if there is one, so that reads do not wait for it.
    private func sendFence(to server: ServerIdentity) {
        let candidates = slots.indices.filter { slots[$0].pipeline?.ready.server == server }
        guard let index = candidates.last, let pipeline = slots[index].pipeline, !pipeline.hasFence else { return }
        do {
            try pipeline.sendFence(at: SystemUptime.moment)
            try flush(pipeline, index)
        } catch {
            lose(index, error)
        }
    }

    /// Gives held groups that are proven by now their outcomes, and asks for another proof for the others.
    func releaseHeld() {
        for slot in slots where slot.isHolding {
            guard let pipeline = slot.pipeline else { continue }
            for group in pipeline.takeProven() { succeed(group) }
            if slot.isHolding { sendFence(to: pipeline.ready.server) }
        }
    }

    /// Ends an operation, unless it has ended; `tell` calls its completion.
    private func complete(_ operation: Operation, _ tell: () -> Void) {
        guard !operation.isOver else { return }
        operation.isOver = true
        tell()
        release(operation.bytes)
    }

    // MARK: - Errors

    /// Sends the operations of a transaction again that was rolled back, or fails them; throws if the connection must be replaced.
    private func repeatOrFail(
        _ group: Pipeline.Group, _ error: PostgresError, at host: String
    ) throws(PostgresError) {
        if error.endsConnection {
            // The caller drops the connection, which sends again what else was under way on it.
            requeue(group.operations, error)
            throw error
        }
        guard !group.isFence else { throw error }
        if error.state?.isTransient == true {
            state.count { $0.noteRetry(error.state) }
            delayed += group.operations
            return setTimer(soon: true)
        }
        let isLocked = error.state == .lockNotAvailable
        for operation in group.operations where !operation.isOver {
            if isLocked || group.operations.count > 1 {
                // One of them may be the reason, and the error does not say which.
                operation.isAlone = true
                isLocked ? delayed.append(operation) : gatherAgain(operation)
            } else {
                fail(operation, StoreFault(error, at: host, isOfOneToken: error.state?.isOfOneRow == true), error.state)
            }
        }
        // After those that have waited, as it delays later ones of the same user.
        if isLocked { noteLock(group) }
    }

    /// A row was not free in time; what the transaction was to do is repeated as long as there is time.
    private func noteLock(_ group: Pipeline.Group) {
        state.count { $0.noteRetry(.lockNotAvailable) }
        // It may have waited for a key that is being retired, as this server did not know yet that another one seals.
        state.hasRefusedKey.store(true, ordering: .relaxed)
        setTimer(soon: true)
        guard group.operations.count == 1, let user = group.operations.first?.lockOrder, !user.isEmpty else { return }
        // All that is to be done for the same user comes after the rest, which would otherwise wait for each of it.
        for slot in slots {
            for operation in slot.queue where operation.lockOrder == user {
                operation.isAlone = true
                delayed.append(operation)
            }
            slot.queue.removeAll { $0.lockOrder == user }
        }
    }

    /// Gathers an operation again, or gives it up if its time is over.
    func gatherAgain(_ operation: Operation) {
        operation.isLate ? giveUp(operation) : gather(operation)
    }

    private func requeue(_ operations: [Operation], _ error: PostgresError) {
        for operation in operations where !operation.isOver {
            state.count { $0.noteRetry(error.state) }
            gatherAgain(operation)
        }
    }

    /// Ends an operation that the database has failed.
    private func fail(_ operation: Operation, _ fault: StoreFault, _ code: SQLState? = nil) {
        guard !operation.isOver else { return }
        if code == .foreignKeyViolation {
            // Its key was retired, as this server did not know yet that another one seals.
            state.hasRefusedKey.store(true, ordering: .relaxed)
            return complete(operation) { operation.fail(.staleKey) }
        }
        // A fault of one token is logged with its request.
        if !fault.isOfOneToken { state.noteFailure(fault, isWrite: operation.isWrite) }
        complete(operation) { operation.fail(operation.isWrite ? .write(fault) : .read(fault)) }
    }

    /// Fails an operation whose time is over.
    ///
    /// If it was sent, this happens when its connection has waited for as long as a request may, counted from the sending.
    func giveUp(_ operation: Operation) {
        guard !operation.isOver else { return }
        let host = state.hosts.primary.map { " at \($0.address)" } ?? ""
        let hint =
            operation.isWrite
            ? """
            ; if it answers reads, its commits wait for a standby, or rows are locked: see pg_stat_replication and pg_locks there
            """ : ""
        let reason =
            state.missingPrimary.map { " has no usable primary: \($0)" }
            ?? "\(host) has not answered within \(options.timeout)\(hint)"
        let fault = StoreFault("PostgreSQL\(reason)", mayRetry: true)
        state.noteFailure(fault, isWrite: operation.isWrite, after: options.timeout)
        let error: StoreError =
            state.missingPrimary == nil ? .overloaded(.unanswered(limit: options.timeout)) : .unavailable(fault)
        complete(operation) { operation.fail(error) }
    }

    /// Ends an operation that has changed nothing in the database, and that no client waits for any longer.
    func drop(_ operation: Operation) {
        state.count { $0.remote.dropped += 1 }
        complete(operation) {}
    }

    /// Drops a connection, and orders another one.
    func lose(_ index: Int, _ error: PostgresError) {
        guard let server = slots[index].pipeline?.ready.server else { return }
        discard(connection: index, error)
        finder.noteLoss(of: server)
        order(index)
    }

    /// Drops a connection, and gathers its operations again.
    ///
    /// - Parameter isExpected: Whether it is dropped because another server is the primary.
    func discard(connection index: Int, _ error: PostgresError, isExpected: Bool = false) {
        let slot = slots[index]
        guard let pipeline = slot.pipeline else { return }
        if pipeline.hasFence { state.count { $0.remote.failedProofs += 1 } }
        let unfinished = (pipeline.held.map(\.group) + pipeline.groups).flatMap(\.operations)
        for operation in unfinished { operation.mayHaveLanded = operation.isWrite }
        ready.remove(pipeline.connection.socket)
        slot.pipeline = nil
        state.note { $0.noteLost(pipeline.ready.server.address, error, isExpected: isExpected, at: $1) }
        // Operations that wait in this slot may be sent on another one.
        let waiting = slot.queue
        slot.queue = []
        requeue(unfinished, error)
        for operation in waiting { gather(operation) }
        setTimer()
    }
}
#endif
