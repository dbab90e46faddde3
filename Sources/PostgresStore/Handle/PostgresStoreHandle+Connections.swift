#if PostgreSQL
import Synchronization
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

    /// Takes what the finder has found for a slot.
    func take(_ finding: PrimaryFinder.Finding, _ index: Int) {
        switch finding {
        case .connection(let found):
            slots[index].isOrdered = false
            adopt(found, index)
        case .noOtherPrimary(let server, let since):
            // This is as good as a proof, so reads count although no standby acknowledges a commit.
            state.proofs.proof(of: server).note(since)
            releaseHeld()
        case .nothing:
            slots[index].isOrdered = false
            // The order was for a replacement, but the connection may have been lost since.
            if slots[index].pipeline == nil { order(index) }
        }
        setTimer()
    }

    private func adopt(_ found: ReadyConnection, _ index: Int) {
        let slot = slots[index]
        if let present = slot.pipeline {
            let isBetter = present.ready.server != found.server || (found.canCommit && isHopeless(present))
            guard isBetter else {
                // The connection stays: its server is the primary. It is looked for again later, as it may fail.
                slot.searchAgainAt = .now + Self.patience
                return
            }
            let error = PostgresError.timedOut("\(present.ready.server.address) does not answer")
            discard(connection: index, error, isExpected: present.ready.server != found.server)
        }
        do throws(SystemError) {
            try ready.add(found.connection.socket, tag: UInt64(index))
        } catch {
            return order(index)
        }
        slot.pipeline = Pipeline(found, state.proofs.proof(of: found.server))
        if found.needsProof, found.canCommit { state.count { $0.noteProof(begunAt: found.provenAt) } }
        state.note { $0.noteConnected(found.server.address, found.description, at: $1) }
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
        let half = Nanoseconds(options.timeout).count / 2
        let isReading = !pipeline.groups.contains { $0.isWrite || $0.isFence }
        return (MonotonicTime.now - since).count > (isReading ? min(half, Self.patienceWithReads.count) : half)
    }

    /// Drops the connections to servers that must no longer be used, as their settings have changed.
    func leaveRefusedServers() {
        for (index, slot) in slots.enumerated() {
            guard let server = slot.pipeline?.ready.server, let reason = state.refusedServers.reason(server) else {
                continue
            }
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
        let now = MonotonicTime.now
        let again = delayed
        delayed = []
        for operation in again { gatherAgain(operation) }
        releaseHeld()
        for (index, slot) in slots.enumerated() {
            giveUpWaiting(slot)
            guard let pipeline = slot.pipeline else { continue }
            for operation in pipeline.held.answers.flatMap(\.operations) where operation.isLate {
                giveUp(operation)
            }
            pipeline.held.drop { $0.operations.allSatisfy(\.isOver) }
            guard let since = pipeline.waitingSince else { continue }
            let waited = now - since
            if waited.count > Self.patience.count, slot.searchAgainAt < now {
                order(index, isReplacement: true)
            }
            guard waited.count > Nanoseconds(options.timeout).count else { continue }
            if pipeline.groups.contains(where: { $0.isWrite || $0.isFence }) {
                // The connection stays open. If it were closed, the server's process would still wait, for a standby or another
                // transaction, and with many such processes the server would soon accept no connection.
                for operation in pipeline.groups.flatMap(\.operations) where operation.isLate {
                    giveUp(operation)
                }
            } else {
                lose(index, .timedOut("\(pipeline.ready.server.address) has not answered within \(options.timeout)"))
            }
        }
        flush()
        if !delayed.isEmpty || slots.contains(where: { !$0.isIdle }) { setTimer() }
    }

    /// Gives up operations that could not be sent in time, and drops those that no client waits for any longer.
    func giveUpWaiting(_ slot: ConnectionSlot) {
        let now = SystemUptime.now
        // No client may wait for these any longer either, but they count as failures, as the database was too slow for them.
        let late = slot.queue.filter { $0.deadline <= now }
        let unwanted = slot.queue.filter { $0.deadline > now && !$0.hasBeenSent && !$0.isAwaited }
        guard !late.isEmpty || !unwanted.isEmpty else { return }
        slot.queue.removeAll { $0.deadline <= now || !$0.hasBeenSent && !$0.isAwaited }
        for operation in late { giveUp(operation) }
        for operation in unwanted { drop(operation) }
    }
}
#endif
