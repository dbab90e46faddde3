#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// One loop's connections to the database, and the operations that it has gathered for them.
///
/// Operations of a turn are sent together at its end, in pipeline mode, and the loop goes on; `proceed` takes the answers. Reads
/// and writes have connections of their own, as a write waits for a standby. The next writes are sent when the answer
/// to those before is there, so the more there are, the more share a commit.
final class PostgresStoreHandle: StoreHandle, @unchecked Sendable {
    // Unchecked: it belongs to its thread; others use it only through `deliver`, which runs closures on its thread.

    let state: PostgresState
    let rows: RowAccess
    let options: PostgresOptions
    private let finder: PrimaryFinder
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private let ready: ReadinessSet
    private let slots: [ConnectionSlot]
    /// The slots for reads are those before this one, unless there is one slot for all.
    private let firstWritingSlot: Int
    /// Operations that are sent again after a moment.
    private var delayed: [Operation] = []
    /// Reads that can be joined, by the row's key.
    var reads: [[UInt8]: FetchOperation] = [:]
    private var operationCount: UInt64 = 0

    /// The most that is sent as one transaction, and that may wait for answers on one connection.
    private enum Most {
        static let writesTogether = 128
        static let bytesTogether = 4 << 20
        static let statementsUnderWay = 1_024
    }

    init(
        _ state: PostgresState, _ options: PostgresOptions, _ finder: PrimaryFinder,
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(SystemError) {
        self.state = state
        self.options = options
        self.finder = finder
        self.deliver = deliver
        rows = RowAccess(state)
        ready = try ReadinessSet()
        let count = max(1, options.connections)
        slots = (0..<count).map { _ in ConnectionSlot() }
        firstWritingSlot = count / 2
        for slot in slots.indices { order(slot, because: .missing) }
    }

    var timeLimit: Duration? { options.timeout }

    var descriptor: Int32? { ready.descriptor }

    var deadline: MonotonicTime { .now + Nanoseconds(options.timeout) }

    // MARK: - Gathering

    /// Counts an operation that has to wait.
    ///
    /// - Returns: Why it is refused; nil if it is admitted.
    func admit(_ bytes: Int) -> StoreError? {
        if state.isClosed.load(ordering: .acquiring) { return .closed }
        guard state.waitingRequests.add(1, ordering: .relaxed).newValue <= options.requestLimit else {
            state.waitingRequests.subtract(1, ordering: .relaxed)
            return .overloaded(.requests(options.requestLimit))
        }
        guard state.waitingBytes.add(bytes, ordering: .relaxed).newValue <= state.queueLimit else {
            release(bytes)
            return .overloaded(.queue(bytes: state.queueLimit))
        }
        return nil
    }

    func release(_ bytes: Int) {
        state.waitingRequests.subtract(1, ordering: .relaxed)
        state.waitingBytes.subtract(bytes, ordering: .relaxed)
    }

    /// Gathers an operation that was admitted, to be sent at the end of the turn.
    func gather(_ operation: Operation) {
        if operation.number == 0 {
            operationCount += 1
            operation.number = operationCount
        }
        let candidates = operation.isWrite ? firstWritingSlot..<slots.count : 0..<max(1, firstWritingSlot)
        // The one with the least to do; those without a connection come last.
        var (best, least) = (candidates.lowerBound, Int.max)
        for index in candidates {
            let slot = slots[index]
            let load = slot.queue.count + (slot.pipeline?.statementCount ?? 1 << 20)
            if load < least { (best, least) = (index, load) }
        }
        slots[best].queue.append(operation)
    }

    // MARK: - Sending

    func flush() {
        for index in slots.indices where !slots[index].queue.isEmpty { send(index) }
    }

    private func send(_ index: Int) {
        let slot = slots[index]
        guard let pipeline = slot.pipeline else { return setTimer() }
        let now = MonotonicTime.now
        do throws(PostgresError) {
            var mayWrite = !pipeline.groups.contains(where: \.isWrite)
            var left = slot.queue[...]
            while !left.isEmpty, pipeline.statementCount < Most.statementsUnderWay {
                guard mayWrite || !left.contains(where: \.isWrite) else { break }
                let group = take(from: &left, pipeline.ready.sharesCommits)
                slot.queue = Array(left)
                if group.contains(where: \.isWrite) {
                    mayWrite = false
                    state.metrics.noteGroup(group.count)
                }
                try pipeline.send(group, at: now)
            }
            if pipeline.ready.needsProof, !pipeline.hasFence,
                (now - pipeline.provenAt).count > Fence.renewal.count || !slot.held.isEmpty
            {
                try pipeline.sendFence(at: now)
            }
            try flush(pipeline, index)
        } catch {
            lose(index, error)
        }
        setTimer()
    }

    /// The operations of the next group, in the order in which they lock their rows.
    private func take(from left: inout ArraySlice<Operation>, _ sharesCommits: Bool) -> [Operation] {
        guard sharesCommits || left.first?.isWrite != true else { return [left.removeFirst()] }
        var (group, bytes) = ([Operation](), 0)
        while let next = left.first, group.count < Most.writesTogether, bytes < Most.bytesTogether {
            if !sharesCommits, next.isWrite { break }
            group.append(next)
            bytes += next.bytes
            left.removeFirst()
        }
        guard group.contains(where: \.isWrite) else { return group }
        // Sorted stably: two writes of one token keep their order.
        return group.enumerated()
            .sorted { one, other in
                let (first, second) = (one.element.lockOrder, other.element.lockOrder)
                return first == second ? one.offset < other.offset : first.lexicographicallyPrecedes(second)
            }
            .map(\.element)
    }

    private func flush(_ pipeline: Pipeline, _ index: Int) throws(PostgresError) {
        let isForWriting = try !pipeline.connection.flush()
        guard isForWriting != pipeline.awaitsWriting else { return }
        pipeline.awaitsWriting = isForWriting
        do throws(SystemError) {
            try ready.change(pipeline.connection.socket, tag: UInt64(index), isForWriting: isForWriting)
        } catch {
            throw .connection("\(error)")
        }
    }

    // MARK: - Receiving

    func proceed() {
        let ready = ready.take()
        for tag in ready.tags { receive(Int(tag)) }
        if ready.isTimeUp { lookAtTime() }
    }

    private func receive(_ index: Int) {
        guard let pipeline = slots[index].pipeline else { return }
        var ended: [Pipeline.Group] = []
        var failure: PostgresError?
        do throws(PostgresError) {
            try pipeline.receive(&ended)
            try flush(pipeline, index)
        } catch {
            failure = error
        }
        for group in ended {
            do throws(PostgresError) {
                try end(group, of: pipeline, index)
            } catch {
                failure = failure ?? error
            }
        }
        if let failure { return lose(index, failure) }
        releaseHeld(index)
    }

    /// Gives the outcomes of a transaction that has ended.
    private func end(
        _ group: Pipeline.Group, of pipeline: Pipeline, _ index: Int
    ) throws(PostgresError) {
        let now = MonotonicTime.now
        state.metrics.noteRoundTrip((now - group.sentAt).count)
        if let failure = group.failure { return try repeatOrFail(group, failure) }
        if let warning = group.warning, !group.isFence, group.isWrite {
            // Stored on this server, and maybe on no other one.
            for operation in group.operations {
                finish(operation) { operation.fail(.write(StoreFault(unacknowledged: warning))) }
            }
            return
        }
        guard !group.isFence else { return }
        if pipeline.isProven(group, answeredAt: now) {
            succeed(group)
        } else {
            slots[index].held.append((group, now))
            if !pipeline.hasFence {
                state.metrics.fences.add(1, ordering: .relaxed)
                try pipeline.sendFence(at: .now)
                try flush(pipeline, index)
            }
        }
    }

    private func succeed(_ group: Pipeline.Group) {
        state.noteSuccess(isWrite: group.isWrite)
        // In the order in which they were asked for.
        for operation in group.operations.sorted(by: { $0.number < $1.number }) {
            operation.mayHaveLanded = false
            switch operation.finish() {
            case .done: finish(operation) {}
            case .goesOn: operation.deadline > .now ? gather(operation) : giveUp(operation)
            }
        }
    }

    /// Gives the outcomes of groups that are proven now, and asks for the next proof for the others.
    private func releaseHeld(_ index: Int) {
        let slot = slots[index]
        guard !slot.held.isEmpty, let pipeline = slot.pipeline else { return }
        let held = slot.held
        slot.held = []
        for (group, answeredAt) in held {
            if pipeline.isProven(group, answeredAt: answeredAt) {
                succeed(group)
            } else {
                slot.held.append((group, answeredAt))
            }
        }
        guard !slot.held.isEmpty, !pipeline.hasFence else { return }
        do throws(PostgresError) {
            try pipeline.sendFence(at: .now)
            try flush(pipeline, index)
        } catch {
            lose(index, error)
        }
    }

    /// Ends an operation whose completion is called by `complete`.
    private func finish(_ operation: Operation, _ complete: () -> Void) {
        complete()
        release(operation.bytes)
        if let fetch = operation as? FetchOperation { finishRead(fetch) }
    }

    // MARK: - Errors

    /// A transaction was rolled back: one of its statements has failed, or the commit.
    private func repeatOrFail(
        _ group: Pipeline.Group, _ failure: (operation: Int, error: PostgresError)
    ) throws(PostgresError) {
        let (number, error) = failure
        if error.endsConnection {
            // What was not committed is sent again by `lose`, together with the rest.
            requeue(group.operations, error)
            throw error
        }
        guard !group.isFence else { throw error }
        if error.state?.isTransient == true {
            state.metrics.noteRetry(error.state?.code ?? "lost")
            delayed += group.operations
            return setTimer(soon: true)
        }
        // An error of one row's data concerns this operation alone, others are those of the server or its disk.
        let isOfOne = ["21", "22", "23"].contains(error.state?.errorClass ?? "")
        for (index, operation) in group.operations.enumerated() {
            if index == number || !isOfOne {
                let fault = StoreFault(error)
                state.noteFailure(fault, isWrite: operation.isWrite)
                finish(operation) { operation.fail(operation.isWrite ? .write(fault) : .read(fault)) }
            } else {
                gather(operation)
            }
        }
    }

    /// Sends operations again, as far as they have time.
    private func requeue(_ operations: [Operation], _ error: PostgresError) {
        let now = MonotonicTime.now
        for operation in operations {
            if operation.deadline > now {
                state.metrics.noteRetry(error.state?.code ?? "lost")
                gather(operation)
            } else {
                giveUp(operation)
            }
        }
    }

    private func giveUp(_ operation: Operation) {
        finish(operation) { operation.timeOut(after: options.timeout) }
    }

    /// Drops a connection, and orders another one.
    private func lose(_ index: Int, _ error: PostgresError) {
        let slot = slots[index]
        guard let pipeline = slot.pipeline else { return }
        let unfinished = slot.takeUnfinished()
        for operation in unfinished { operation.mayHaveLanded = operation.isWrite }
        ready.remove(pipeline.connection.socket)
        slot.pipeline = nil
        state.noteLost(error)
        finder.noteLost(pipeline.ready.server, error)
        order(index, because: .lost(pipeline.ready.server))
        // Those that wait in this slot may be sent on another one.
        let waiting = slot.queue
        slot.queue = []
        requeue(unfinished, error)
        for operation in waiting { gather(operation) }
        setTimer()
    }

    // MARK: - Connections

    private func order(_ index: Int, because reason: PrimaryFinder.Reason) {
        guard !slots[index].isOrdered else { return }
        slots[index].isOrdered = true
        finder.order(
            PrimaryFinder.Order(reason: reason) { [weak self, deliver] found in
                deliver { [weak self] in self?.adopt(found, index) }
            })
    }

    /// Takes a connection that was ordered; nil if the search has found no other server than the present one.
    private func adopt(_ found: ReadyConnection?, _ index: Int) {
        let slot = slots[index]
        slot.isOrdered = false
        guard let found else { return setTimer() }
        if let present = slot.pipeline {
            guard present.ready.server != found.server || isHopeless(present) else { return setTimer() }
            state.metrics.failovers.add(1, ordering: .relaxed)
            lose(index, .timedOut("\(present.ready.server.address) does not answer"))
            slot.isOrdered = false
        }
        do throws(SystemError) {
            try ready.add(found.connection.socket, tag: UInt64(index))
        } catch {
            return order(index, because: .missing)
        }
        slot.pipeline = Pipeline(found)
        state.noteConnected()
        // What waits where there is no connection is sent here.
        let waiting = slots.flatMap { $0.pipeline == nil ? $0.queue : [] }
        for other in slots where other.pipeline == nil { other.queue = [] }
        for operation in waiting { gather(operation) }
        flush()
    }

    /// Whether the connection's oldest request has waited for half of the time that it has.
    private func isHopeless(_ pipeline: Pipeline) -> Bool {
        guard let since = pipeline.waitingSince else { return false }
        return (MonotonicTime.now - since).count > Nanoseconds(options.timeout).count / 2
    }

    // MARK: - Time

    /// After this time without an answer, another primary is looked for.
    private static let patience = Nanoseconds(.milliseconds(500))

    private func setTimer(soon: Bool = false) {
        ready.setTimer(milliseconds: soon || !delayed.isEmpty ? 20 : 100)
    }

    private func lookAtTime() {
        let now = MonotonicTime.now
        let again = delayed
        delayed = []
        for operation in again { operation.deadline > now ? gather(operation) : giveUp(operation) }
        for (index, slot) in slots.enumerated() {
            giveUpWaiting(slot, now)
            guard let pipeline = slot.pipeline, let since = pipeline.waitingSince else { continue }
            let waited = now - since
            if waited.count > Nanoseconds(options.timeout).count {
                lose(index, .timedOut("\(pipeline.ready.server.address) has not answered within \(options.timeout)"))
            } else if waited.count > Self.patience.count {
                order(index, because: .stalled(pipeline.ready.server))
            }
        }
        flush()
        if !delayed.isEmpty || slots.contains(where: { !$0.isIdle }) { setTimer() }
    }

    /// Gives up operations that could not be sent in time.
    private func giveUpWaiting(_ slot: ConnectionSlot, _ now: MonotonicTime) {
        guard slot.queue.contains(where: { $0.deadline <= now }) else { return }
        let late = slot.queue.filter { $0.deadline <= now }
        slot.queue.removeAll { $0.deadline <= now }
        for operation in late {
            state.noteFailure(state.lastFault, isWrite: operation.isWrite)
            giveUp(operation)
        }
    }
}
#endif
