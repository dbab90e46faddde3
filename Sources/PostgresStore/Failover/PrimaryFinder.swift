#if PostgreSQL
internal import Dispatch
internal import Synchronization
internal import System
internal import TokenStore

/// Finds the server that takes writes, and makes the connections that handles order.
///
/// One thread decides, and each connection is made by a thread of its own, as looking up a name, a handshake and a
/// password take long. The last primary is asked first, all hosts if it does not answer soon; whichever proves to be the
/// primary gets the connections. Any thread.
final class PrimaryFinder: Sendable {
    /// Why a connection is needed.
    enum Reason: Sendable {
        /// There is none yet.
        case missing
        /// The one to this server is lost.
        case lost(ServerIdentity)
        /// The one to this server does not answer, and is kept until another server is found.
        case stalled(ServerIdentity)
    }

    /// A connection that a handle needs.
    struct Order: Sendable {
        let reason: Reason
        /// Takes what was found, on any thread.
        let deliver: @Sendable (Finding) -> Void
    }

    /// What a search has found.
    enum Finding: Sendable {
        /// A connection, which ends the order.
        case connection(ReadyConnection)
        /// All other hosts were asked from this moment on, and none of them can be the primary; the search goes on.
        case noOtherPrimary(than: ServerIdentity, since: MonotonicTime)
        /// No other server, for an order whose reason is `stalled`, which ends.
        case nothing
    }

    private enum Event: Sendable {
        case ordered(Order)
        case lost
        case dialed(host: Int, since: MonotonicTime, Result<ReadyConnection, Dial.Refusal>)
        case closed
    }

    private let target: ConnectionTarget
    private let dial: @Sendable (_ host: Int, _ proves: Bool) -> Dial
    private let state: PostgresState
    private let events = Mutex<[Event]>([])
    private let arrival = DispatchSemaphore(value: 0)

    /// - Parameters:
    ///   - target: The hosts.
    ///   - state: Is told of what is found.
    ///   - dial: Makes what connects to a host, by its place in `target.hosts`.
    init(
        _ target: ConnectionTarget, _ state: PostgresState,
        dial: @escaping @Sendable (_ host: Int, _ proves: Bool) -> Dial
    ) {
        (self.target, self.state, self.dial) = (target, state, dial)
    }

    /// Begins to work; to be called once.
    func start() {
        NamedThread.start("pg-finder") { self.run() }
    }

    func order(_ order: Order) { post(.ordered(order)) }

    /// A handle has lost a connection.
    func noteLoss() { post(.lost) }

    func close() { post(.closed) }

    private func post(_ event: Event) {
        events.withLock { $0.append(event) }
        arrival.signal()
    }

    // MARK: - The thread

    /// What the thread knows.
    private struct Search {
        var orders: [Order] = []
        /// When the dials began that are under way, and when the next one may begin, by host.
        var dialing: [[MonotonicTime]]
        var notBefore: [MonotonicTime]
        /// Why each host was not used at the last attempt; nil before it.
        var refusals: [Dial.Refusal?]
        /// When the last attempt began at which a host was certainly no primary.
        var notPrimaryAt: [MonotonicTime?]
        var primary: Int?
        /// The server that was the primary last; its host may have become another one.
        var server: ServerIdentity?
        /// When the first of the orders came.
        var since = MonotonicTime(nanoseconds: 0)
        /// From when on the other hosts are asked as well.
        var othersFrom = MonotonicTime(nanoseconds: 0)

        /// Since when all other hosts are known not to be the primary; nil if one of them may be, or there is no other.
        func noOtherPrimary(than host: Int) -> MonotonicTime? {
            var earliest: MonotonicTime?
            for other in notPrimaryAt.indices where other != host {
                guard let since = notPrimaryAt[other] else { return nil }
                earliest = min(earliest ?? since, since)
            }
            return earliest
        }
    }

    /// How long the last primary is asked alone.
    private static let headStart = Nanoseconds(.milliseconds(300))
    private static let dialsAtOnce = 8
    /// How long a dial is the only one before another one is made beside it.
    private static let patience = Nanoseconds(.seconds(1))

    private func run() {
        let count = target.hosts.count
        var search = Search(
            dialing: Array(repeating: [], count: count),
            notBefore: Array(repeating: MonotonicTime(nanoseconds: 0), count: count),
            refusals: Array(repeating: nil, count: count), notPrimaryAt: Array(repeating: nil, count: count))
        while true {
            _ = arrival.wait(timeout: search.orders.isEmpty ? .distantFuture : .now() + .milliseconds(25))
            let arrived = events.withLock { events in
                defer { events = [] }
                return events
            }
            for event in arrived {
                switch event {
                case .ordered(let order): take(order, &search)
                case .lost: noteLoss(&search)
                case .dialed(let host, let since, let result): take(result, from: host, since: since, &search)
                case .closed: return
                }
            }
            giveUpIfAllRefuse(&search)
            dialHosts(&search)
        }
    }

    private func take(_ order: Order, _ search: inout Search) {
        let now = MonotonicTime.now
        if search.orders.isEmpty { (search.since, search.othersFrom) = (now, now + Self.headStart) }
        if case .stalled = order.reason { search.othersFrom = now }
        search.orders.append(order)
    }

    private func noteLoss(_ search: inout Search) {
        // Other connections to it may still work, but all hosts are asked from now on.
        search.othersFrom = .now
    }

    private func take(
        _ result: Result<ReadyConnection, Dial.Refusal>, from host: Int, since: MonotonicTime, _ search: inout Search
    ) {
        search.dialing[host].firstIndex(of: since).map { _ = search.dialing[host].remove(at: $0) }
        state.metrics.pendingConnections.subtract(1, ordering: .relaxed)
        switch result {
        case .success(let ready):
            (search.refusals[host], search.notPrimaryAt[host]) = (nil, nil)
            if let last = search.server, last != ready.server {
                state.noteTakeover(Takeover(of: ready, from: last, searchedSince: search.since, state.proofs, at: .now))
            }
            (search.primary, search.server) = (host, ready.server)
            state.hosts.notePrimary(host)
            // Without an order it is closed, as it goes out of scope.
            guard !search.orders.isEmpty else { return }
            search.orders.removeFirst().deliver(.connection(ready))
        case .failure(let refusal):
            search.refusals[host] = refusal
            search.notPrimaryAt[host] = refusal.isCertain ? since : nil
            if search.primary == host { search.othersFrom = .now }
            search.notBefore[host] = .now + Nanoseconds(.milliseconds(Int64.random(in: 100...200)))
            tellOfEvidence(search)
            switch refusal {
            case .standby: break
            case .unproven: state.hosts.note(host, isReachable: true)
            case .failed(let error): state.hosts.note(host, isReachable: error.isFromServer)
            }
        }
    }

    /// Tells those who wait for an answer of a host that no other one can be the primary.
    private func tellOfEvidence(_ search: Search) {
        guard let primary = search.primary, let server = search.server,
            let since = search.noOtherPrimary(than: primary)
        else { return }
        for order in search.orders { order.deliver(.noOtherPrimary(than: server, since: since)) }
    }

    /// Starts the dials that the orders need now.
    private func dialHosts(_ search: inout Search) {
        guard !search.orders.isEmpty else { return }
        let now = MonotonicTime.now
        for host in target.hosts.indices where search.notBefore[host] <= now {
            let isLikely = search.primary == host && search.refusals[host] == nil
            guard isLikely || search.primary == nil || search.othersFrom <= now else { continue }
            // Of a host that is not known to be the primary, one connection is enough to find out.
            let most = isLikely ? min(search.orders.count, Self.dialsAtOnce) : 1
            // One whose packets were lost holds up no other for long.
            var young = search.dialing[host].count { (now - $0).count < Self.patience.count }
            while young < most, search.dialing[host].count < 2 * Self.dialsAtOnce {
                young += 1
                search.dialing[host].append(now)
                state.metrics.pendingConnections.add(1, ordering: .relaxed)
                let evidence = search.noOtherPrimary(than: host)
                // Its commits do not return, but it is the only primary that there can be: tokens can be read.
                let proves =
                    search.refusals[host]?.isUnproven != true
                    || evidence.map { (now - $0).count > Fence.validity.count } ?? true
                let dial = dial(host, proves)
                NamedThread.start("pg-dial") {
                    self.post(
                        .dialed(host: host, since: now, dial.run().map { $0.proven(at: proves ? nil : evidence) }))
                }
            }
        }
    }

    /// Tells operators, and those who still have a connection, when no host is a primary.
    private func giveUpIfAllRefuse(_ search: inout Search) {
        guard !search.orders.isEmpty, search.refusals.allSatisfy({ $0 != nil }) else { return }
        let reasons = zip(target.hosts, search.refusals).map { host, refusal in
            switch refusal {
            case .standby?: "\(host) is a standby"
            case .unproven?: "\(host) answers, but its commits wait for a standby (see pg_stat_replication there)"
            case .failed(.timedOut(let text))?: "\(host) \(text)"
            case .failed(let error)?: "\(host): \(error)"
            case nil: "\(host)"
            }
        }
        state.noteNotFound(reasons.joined(separator: "; "))
        let stalled = search.orders.filter { if case .stalled = $0.reason { true } else { false } }
        search.orders.removeAll { if case .stalled = $0.reason { true } else { false } }
        for order in stalled { order.deliver(.nothing) }
        // Each is asked once more before the next report.
        search.refusals = search.refusals.map { _ in nil }
    }
}
#endif
