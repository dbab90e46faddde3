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
        /// Called with what was found, on any thread.
        let deliver: @Sendable (Finding) -> Void
    }

    /// What a search has found.
    enum Finding: Sendable {
        /// A connection; the order is fulfilled.
        case connection(ReadyConnection)
        /// All other hosts are standbys, and since this moment none of them can have been the primary; the search continues.
        case noOtherPrimary(than: ServerIdentity, since: MonotonicTime)
        /// No other server was found; a replacement order ends with this.
        case nothing
    }

    private enum Event: Sendable {
        case ordered(Order)
        case lost(ServerIdentity)
        case dialed(host: Int, since: MonotonicTime, Result<ReadyConnection, Dial.Refusal>)
        case closed
    }

    private let hosts: [DatabaseHost]
    private let dial: @Sendable (_ host: Int, _ trial: Dial.Trial) -> Dial
    private let state: PostgresState
    private let events = Mutex<[Event]>([])
    private let arrival = Semaphore()

    /// - Parameters:
    ///   - hosts: In the order of the settings.
    ///   - state: Records what is found.
    ///   - dial: Makes a dial to a host, by its index in `hosts`.
    init(
        _ hosts: [DatabaseHost], _ state: PostgresState,
        dial: @escaping @Sendable (_ host: Int, _ trial: Dial.Trial) -> Dial
    ) {
        (self.hosts, self.state, self.dial) = (hosts, state, dial)
    }

    /// Starts the thread; to be called once.
    func start() {
        NamedThread.startOrExit("pg-finder") { self.run() }
    }

    func order(_ order: Order) { post(.ordered(order)) }

    /// A handle has lost a connection to a server.
    func noteLoss(of server: ServerIdentity) { post(.lost(server)) }

    func close() { post(.closed) }

    private func post(_ event: Event) {
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
    }

    private func run() {
        var work = Work(search: PrimarySearch(hosts: hosts.count))
        while true {
            if work.orders.isEmpty { arrival.wait() } else { arrival.wait(atMost: .milliseconds(25)) }
            let arrived = events.withLock { events in
                defer { events = [] }
                return events
            }
            for event in arrived {
                switch event {
                case .ordered(let order):
                    if work.orders.isEmpty { work.since = .now }
                    work.search.noteOrder(
                        isFirst: work.orders.isEmpty, isReplacement: order.isReplacement, at: .now)
                    work.orders.append(order)
                case .lost(let server): work.search.noteLoss(of: server, at: .now)
                case .dialed(let host, let since, let result): take(result, from: host, since: since, &work)
                case .closed: return
                }
            }
            giveUpIfAllRefuse(&work)
            dialHosts(&work)
        }
    }

    private func take(
        _ result: Result<ReadyConnection, Dial.Refusal>, from host: Int, since: MonotonicTime, _ work: inout Work
    ) {
        state.count { $0.remote.connections.pending -= 1 }
        switch result {
        case .success(let ready):
            let last = work.search.server
            let verdict = work.search.take(
                ready.server, from: host, isProven: ready.canCommit || !ready.needsProof, begunAt: since, at: .now)
            guard case .used(let isFailover) = verdict else { return }
            if isFailover, let last {
                state.noteTakeover(by: ready, from: last, after: .now - work.since)
            }
            state.hosts.notePrimary(host)
            // If there is no order, the connection is closed as it goes out of scope.
            guard !work.orders.isEmpty else { return }
            work.orders.removeFirst().deliver(.connection(ready))
        case .failure(let refusal):
            work.search.take(refusal, from: host, begunAt: since, at: .now)
            tellOfEvidence(work)
            switch refusal {
            case .standby: break
            case .unproven: state.hosts.note(host, isReachable: true)
            case .failed(let error): state.hosts.note(host, isReachable: error.isFromServer)
            }
        }
    }

    /// Tells the handles that wait for a host's answer that no other host can be the primary.
    private func tellOfEvidence(_ work: Work) {
        guard let (server, since) = work.search.evidence else { return }
        for order in work.orders { order.deliver(.noOtherPrimary(than: server, since: since)) }
    }

    /// Starts the dials that the orders need now.
    private func dialHosts(_ work: inout Work) {
        let now = MonotonicTime.now
        let replaceOnly = work.orders.allSatisfy(\.isReplacement)
        for next in work.search.dials(for: work.orders.count, replaceOnly: replaceOnly, at: now) {
            state.count { $0.remote.connections.pending += 1 }
            let dial = dial(next.host, next.trial)
            do throws(ThreadShortage) {
                try NamedThread.start("pg-dial") { self.post(.dialed(host: next.host, since: now, dial.run())) }
            } catch {
                // The search dials again, as after any failure.
                post(.dialed(host: next.host, since: now, .failure(.failed(.unexpected("\(error)")))))
            }
        }
    }

    /// Tells operators, and the slots that still have a connection, if no host is a primary.
    private func giveUpIfAllRefuse(_ work: inout Work) {
        guard !work.orders.isEmpty, let refusals = work.search.takeReasons() else { return }
        let reasons = zip(hosts, refusals).map { host, refusal in
            switch refusal {
            case .standby: "\(host) is a standby"
            case .unproven: "\(host) answers, but its commits wait for a standby (see pg_stat_replication there)"
            case .failed(let error): "\(host): \(error)"
            }
        }
        state.note { $0.noteNotFound(reasons.joined(separator: "; "), at: $1) }
        let replacements = work.orders.filter(\.isReplacement)
        work.orders.removeAll(where: \.isReplacement)
        for order in replacements { order.deliver(.nothing) }
    }
}
#endif
