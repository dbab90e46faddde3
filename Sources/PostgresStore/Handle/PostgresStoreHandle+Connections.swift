#if PostgreSQL
import System
import TokenStore

/// The connections of a handle, and what happens when time passes.
extension PostgresStoreHandle {
    func order(_ index: Int, isReplacement: Bool = false) {
        guard !slots[index].isOrdered else { return }
        slots[index].isOrdered = true
        finder.order(
            PrimaryFinder.Order(isReplacement: isReplacement) { [weak self, deliver] found in
                deliver { [weak self] in self?.take(found, index) }
            })
    }

    /// Takes what the finder has found for a slot; see `PrimaryFinder.Order`.
    func take(_ found: ReadyConnection?, _ index: Int) {
        slots[index].isOrdered = false
        if let found {
            adopt(found, index)
        } else if slots[index].pipeline == nil {
            // The connection that was to be replaced has been lost since.
            order(index)
        }
        setTimer()
    }

    private func adopt(_ found: ReadyConnection, _ index: Int) {
        let slot = slots[index]
        if let present = slot.pipeline {
            let isBetter = present.ready.server != found.server || (found.canCommit && isHopeless(present))
            guard isBetter else {
                // The connection stays: its server is the primary. It is looked for again later, as it may fail.
                slot.searchAgainAt = SystemUptime.moment + Self.patience
                return
            }
            let error = PostgresError.timedOut("\(present.ready.server.address) does not answer")
            discard(connection: index, error, isExpected: present.ready.server != found.server)
        }
        do {
            try ready.add(found.connection.socket, tag: UInt64(index))
        } catch {
            return order(index)
        }
        slot.pipeline = Pipeline(found, state.proofs.proof(of: found.server))
        state.note { $0.noteConnected(found.server.address, found.facts.description, at: $1) }
        // Operations that wait in slots without a connection are distributed again, so some are sent here.
        let waiting = slots.flatMap { $0.pipeline == nil ? $0.queue : [] }
        for other in slots where other.pipeline == nil { other.queue = [] }
        for operation in waiting { gather(operation) }
        flush()
    }

    /// Whether requests wait on the connection, and nothing has come for more than half of `store.timeout`.
    ///
    /// If only reads wait, a second is enough, as they wait for no other transaction.
    private func isHopeless(_ pipeline: Pipeline) -> Bool {
        guard let since = pipeline.silentSince else { return false }
        let half = Nanoseconds(options.timeout / 2)
        let isReading = pipeline.groups.allSatisfy { $0.kind == .read }
        return SystemUptime.moment - since > (isReading ? min(half, Self.patienceWithReads) : half)
    }

    /// Drops the connections to a server that must no longer be used, as its settings have changed.
    func leave(_ server: ServerIdentity, _ reason: String) {
        for (index, slot) in slots.enumerated() where slot.pipeline?.ready.server == server {
            lose(index, .unexpected(reason))
        }
    }

    // MARK: - Time

    /// How long a request waits for an answer before another primary is looked for.
    private static let patience = Nanoseconds(.milliseconds(500))
    private static let patienceWithReads = Nanoseconds(.seconds(1))

    func setTimer(soon: Bool = false) {
        let isSoon = soon || !delayed.isEmpty || slots.contains(where: \.isHolding)
        ready.setTimer(milliseconds: isSoon ? 20 : 100)
    }

    func lookAtTime() {
        let now = SystemUptime.moment
        let again = delayed
        delayed = []
        for operation in again { gatherAgain(operation) }
        releaseHeld()
        for (index, slot) in slots.enumerated() {
            giveUpWaiting(slot)
            guard let pipeline = slot.pipeline else { continue }
            giveUpLate(pipeline.held.map(\.group))
            // There may be no proof for hours.
            pipeline.held.removeAll { $0.group.operations.allSatisfy(\.isOver) }
            guard let since = pipeline.waitingSince else { continue }
            let waited = now - since
            if waited > Self.patience, slot.searchAgainAt < now {
                order(index, isReplacement: true)
            }
            guard waited > Nanoseconds(options.timeout) else { continue }
            if pipeline.groups.contains(where: { $0.kind != .read }) {
                // The connection stays open. If it were closed, the server's process would still wait, for a standby or another
                // transaction, and with many such processes the server would soon accept no connection.
                giveUpLate(pipeline.groups)
            } else {
                lose(index, .timedOut("\(pipeline.ready.server.address) has not answered within \(options.timeout)"))
            }
        }
        flush()
        if !delayed.isEmpty || slots.contains(where: { !$0.isIdle }) { setTimer() }
    }

    private func giveUpLate(_ groups: [Pipeline.Group]) {
        for operation in groups.flatMap(\.operations) where operation.isLate { giveUp(operation) }
    }

    /// Gives up operations that could not be sent in time, and drops those that no client waits for any longer.
    func giveUpWaiting(_ slot: ConnectionSlot) {
        let now = SystemUptime.now
        func isLate(_ operation: Operation) -> Bool { operation.deadline <= now }
        func isOver(_ operation: Operation) -> Bool {
            isLate(operation) || !operation.mayHaveLanded && !operation.isAwaited
        }
        let ended = slot.queue.filter(isOver)
        guard !ended.isEmpty else { return }
        slot.queue.removeAll(where: isOver)
        // Late ones count as failures even if no client waits for them, as the database was too slow for them.
        for operation in ended { isLate(operation) ? giveUp(operation) : drop(operation) }
    }
}
#endif
