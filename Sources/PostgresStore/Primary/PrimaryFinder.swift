#if PostgreSQL
import Synchronization
import System
import TokenStore

/// Finds the server that takes writes, and makes the connections that handles order.
///
/// One thread decides with a `PrimarySearch`. Each connection is made on a thread of its own, as looking up a name, a TLS handshake
/// and checking a password take long. Any thread.
final class PrimaryFinder: Sendable {
    /// A connection that a handle needs.
    struct Order: Sendable {
        /// Whether the slot still has a connection that does not answer, and that is kept until another server is found.
        let isReplacement: Bool
        /// Called with the connection, on any thread; with nil if a replacement was ordered, and no other server was found.
        let deliver: @Sendable (ReadyConnection?) -> Void
    }

    private let options: PostgresOptions
    private let state: PostgresState
    /// What the thread has to do about what has happened since it last looked.
    private let events = Mutex<[@Sendable (inout Work) -> Void]>([])
    private let arrival = Semaphore()

    /// - Parameters:
    ///   - options: Where the hosts are, and how durable a write must be.
    ///   - state: Records what is found.
    init(_ options: PostgresOptions, _ state: PostgresState) {
        (self.options, self.state) = (options, state)
    }

    /// Starts the thread; to be called once.
    func start() {
        NamedThread.startOrExit("pg-finder") { self.run() }
    }

    func order(_ order: Order) {
        post { work in
            let now = SystemUptime.moment
            if work.orders.isEmpty { work.since = now }
            work.search.noteOrder(isFirst: work.orders.isEmpty, isReplacement: order.isReplacement, at: now)
            work.orders.append(order)
        }
    }

    /// A handle has lost a connection to a server.
    func noteLoss(of server: ServerIdentity) { post { $0.search.noteLoss(of: server, at: SystemUptime.moment) } }

    func close() { post { $0.isClosed = true } }

    private func post(_ event: @escaping @Sendable (inout Work) -> Void) {
        events.withLock { $0.append(event) }
        arrival.signal()
    }

    // MARK: - The thread

    /// What the thread has to do.
    private struct Work {
        var orders: [Order] = []
        /// When the first of the orders came.
        var since = MonotonicTime(nanoseconds: 0)
        var search: PrimarySearch
        var isClosed = false
    }

    private func run() {
        var work = Work(search: PrimarySearch(hosts: options.hosts.count))
        while true {
            if work.orders.isEmpty { arrival.wait() } else { arrival.wait(atMost: .milliseconds(25)) }
            let arrived = events.withLock { events in
                defer { events = [] }
                return events
            }
            for event in arrived { event(&work) }
            if work.isClosed { return }
            giveUpIfAllRefuse(&work)
            dialHosts(&work)
        }
    }

    private func take(
        _ result: Result<ReadyConnection, PostgresError>, from host: Int, since: MonotonicTime, _ work: inout Work
    ) {
        state.count { $0.remote.connections.pending -= 1 }
        let now = SystemUptime.moment
        switch result {
        case .success(let ready):
            let last = work.search.server
            let verdict = work.search.take(
                ready.server, from: host, isProven: ready.canCommit || !ready.needsProof, begunAt: since, at: now)
            guard case .used(let isFailover) = verdict else { return }
            if isFailover, let last {
                state.noteTakeover(by: ready, from: last, after: now - work.since)
            }
            state.hosts.notePrimary(host)
            if ready.needsProof {
                // Reads also go on where a connection was to be replaced, and is kept: a write may wait for a lock on it.
                state.proofs.proof(of: ready.server).note(ready.provenAt)
                if ready.canCommit { state.count { $0.noteProof(begunAt: ready.provenAt) } }
            }
            // If there is no order, the connection is closed as it goes out of scope.
            guard !work.orders.isEmpty else { return }
            work.orders.removeFirst().deliver(ready)
        case .failure(let refusal):
            work.search.take(refusal, from: host, begunAt: since, at: now)
            if let (server, since) = work.search.evidence {
                // This is as good as a proof, so reads count although no standby acknowledges a commit.
                state.proofs.proof(of: server).note(since)
            }
            state.hosts.note(host, refusal)
        }
    }

    /// Starts the dials that the orders need now.
    private func dialHosts(_ work: inout Work) {
        let now = SystemUptime.moment
        let replaceOnly = work.orders.allSatisfy(\.isReplacement)
        for next in work.search.dials(for: work.orders.count, replaceOnly: replaceOnly, at: now) {
            state.count { $0.remote.connections.pending += 1 }
            let dial = Dial(options, state, host: next.host, trial: next.trial)
            do {
                try NamedThread.start("pg-dial") { self.postEnd(of: next, since: now, Result(catching: dial.run)) }
            } catch {
                // The search dials again, as after any failure.
                postEnd(of: next, since: now, .failure(.unexpected("\(error)")))
            }
        }
    }

    private func postEnd(
        of dial: PrimarySearch.NextDial, since: MonotonicTime, _ result: Result<ReadyConnection, PostgresError>
    ) {
        // Weak, because a dial may end after the thread. Its event then stays, and would keep this object alive.
        post { [weak self] work in self?.take(result, from: dial.host, since: since, &work) }
    }

    /// Tells operators, and the slots that still have a connection, if no host is a primary.
    private func giveUpIfAllRefuse(_ work: inout Work) {
        guard !work.orders.isEmpty, let refusals = work.search.takeReasons() else { return }
        let reasons = zip(options.hosts, refusals).map { host, refusal in
            switch refusal {
            case .isStandby: "\(host) is a standby"
            case .isUnproven: "\(host) answers, but \(refusal)"
            default: "\(host): \(refusal)"
            }
        }
        state.note { $0.noteNotFound(reasons.joined(separator: "; "), at: $1) }
        let replacements = work.orders.filter(\.isReplacement)
        work.orders.removeAll(where: \.isReplacement)
        for order in replacements { order.deliver(nil) }
    }
}
#endif
