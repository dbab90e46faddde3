#if PostgreSQL
internal import System
internal import TokenStore

/// Whether clients' requests can be carried out, and what operators are told when that changes.
///
/// Trouble is reported when it begins and when it is over, however many requests it concerns. Decides by what it is told and
/// when, and has no clock of its own; the events that it returns are for the log.
struct StoreHealth: Sendable {
    /// How long the server counts as ready in spite of trouble, so that a short failover takes it out of no load balancer.
    static let grace = Nanoseconds(.seconds(3))
    /// Trouble with requests is over when none has failed for this long, and one has succeeded.
    static let calm = Nanoseconds(.seconds(2))
    /// The least time between two lines about connections that were lost and made again at once, and between two reasons why
    /// no primary is found.
    static let quiet = Nanoseconds(.seconds(10))

    /// Open connections, by the names of their hosts.
    private(set) var connections: [String: Int] = [:]
    /// From when on there is no connection; nil while there is one.
    private var withoutSince: MonotonicTime?
    /// Why the last search found no primary; nil once a connection has been made since.
    ///
    /// Earlier connections may go on meanwhile.
    private(set) var reasons: String?
    private var wasConnected = false
    /// When a connection was made again after the last outage.
    private var reconnectedAt: MonotonicTime?
    /// Whether operators were told of a loss, and not yet of a connection after it.
    private var isTold = false
    /// When operators were last told of a lost connection, and which reasons they were told in this outage, and when.
    private var lastLoss: MonotonicTime?
    private var lastReasons: (text: String, at: MonotonicTime)?
    /// Those of writes, by true, and of reads.
    private var failures: [Bool: Failure] = [:]
    private let places: String

    /// Requests fail although there are connections.
    private struct Failure {
        let since: MonotonicTime
        var last: MonotonicTime
        var count: Int
        var fault: StoreFault
    }

    /// - Parameters:
    ///   - places: The names of the hosts, for texts.
    ///   - now: When the store is opened.
    init(places: String, at now: MonotonicTime) {
        (self.places, withoutSince) = (places, now)
    }

    // MARK: - State

    /// Whether something is to be found out by `noteSuccess` or `noteConnected`.
    var isTroubled: Bool { withoutSince != nil || !failures.isEmpty }

    /// Whether requests of a kind fail although there are connections, but none has failed in the last moment.
    ///
    /// Then only a trial shows whether others would fail as well, as a load balancer may send none to a server that is not ready.
    func needsTrial(ofWrites areWrites: Bool, at now: MonotonicTime) -> Bool {
        guard let failure = failures[areWrites] else { return false }
        return (now - failure.last).count >= Self.calm.count
    }

    /// Why requests fail; nil while they do not, or have only begun to.
    func fault(at now: MonotonicTime) -> StoreError? {
        if let withoutSince, !wasConnected || (now - withoutSince).count > Self.grace.count {
            let reasons = reasons ?? "none of \(places) has answered yet"
            return .unavailable(StoreFault("PostgreSQL has no primary: \(reasons)", mayRetry: true))
        }
        let lasting = failures.filter { (now - $1.since).count > Self.grace.count }
        return lasting[true].map { .write($0.fault) } ?? lasting[false].map { .read($0.fault) }
    }

    // MARK: - Connections

    /// A connection can be used.
    ///
    /// - Parameters:
    ///   - host: Its name.
    ///   - server: What it leads to, such as `PostgreSQL 15.18 at db1:5432 (timeline 1)`.
    mutating func noteConnected(_ host: String, _ server: String, at now: MonotonicTime) -> [StoreEvent] {
        connections[host, default: 0] += 1
        reasons = nil
        guard let since = withoutSince else { return [] }
        defer {
            (withoutSince, lastReasons, isTold) = (nil, nil, false)
            (reconnectedAt, wasConnected) = (now, true)
        }
        guard wasConnected else { return [.own(StoreNotice(.note, "connected to \(server)"))] }
        return isTold ? [.own(StoreNotice(.note, "connected to \(server), after \(Self.text(now - since))"))] : []
    }

    /// A connection cannot be used any more.
    ///
    /// - Parameter isExpected: It was given up, as another server is the primary.
    mutating func noteLost(
        _ host: String, _ error: PostgresError, isExpected: Bool = false, at now: MonotonicTime
    ) -> [StoreEvent] {
        connections[host] = connections[host].flatMap { $0 > 1 ? $0 - 1 : nil }
        if connections.isEmpty { withoutSince = now }
        guard !isExpected || connections.isEmpty, lastLoss.map({ (now - $0).count >= Self.quiet.count }) ?? true else {
            return []
        }
        (lastLoss, isTold) = (now, true)
        let text = "the connection to PostgreSQL at \(host) is lost, looking for the primary: \(error)"
        return [.own(StoreNotice(.warning, text))]
    }

    /// All hosts were asked, and none is a primary.
    ///
    /// - Parameter reasons: For each host, as text.
    mutating func noteNotFound(_ reasons: String, at now: MonotonicTime) -> [StoreEvent] {
        // Also while connections that were made before go on: requests that get none are told why.
        self.reasons = reasons
        guard let since = withoutSince else { return [] }
        if let (text, at) = lastReasons {
            guard text != reasons, (now - at).count >= Self.quiet.count else { return [] }
        } else if wasConnected, (now - since).count < Self.grace.count {
            return []
        }
        (lastReasons, isTold) = ((reasons, now), true)
        let time = wasConnected ? " for \(Self.text(now - since))" : ""
        let text = """
            PostgreSQL has no primary\(time), clients are told that tokens can be neither stored nor read; this server \
            goes on by itself as soon as there is one: \(reasons)
            """
        return [.own(StoreNotice(.fault, text))]
    }

    // MARK: - Requests

    /// A request has failed because of the database or the way to it.
    ///
    /// - Parameter began: When it was begun.
    mutating func noteFailure(
        _ fault: StoreFault, isWrite: Bool, since began: MonotonicTime, at now: MonotonicTime
    ) -> [StoreEvent] {
        if withoutSince != nil { return [] }
        // Its time was over before the new connection could do anything for it: that is no new trouble.
        if let reconnectedAt, began < reconnectedAt { return [] }
        guard failures[isWrite] == nil else {
            failures[isWrite]?.count += 1
            failures[isWrite]?.last = now
            failures[isWrite]?.fault = fault
            return []
        }
        failures[isWrite] = Failure(since: began, last: now, count: 1, fault: fault)
        let what = isWrite ? "stored" : "read"
        return [.own(StoreNotice(.fault, "tokens cannot be \(what), clients are told so: \(fault)"))]
    }

    /// Requests were answered, or a trial was.
    mutating func noteSuccess(isWrite: Bool, at now: MonotonicTime) -> [StoreEvent] {
        guard let failure = failures[isWrite], (now - failure.last).count >= Self.calm.count else { return [] }
        failures[isWrite] = nil
        return [isWrite ? .writesRecovered(failed: failure.count) : .readsRecovered(failed: failure.count)]
    }

    // MARK: - Texts

    static func text(_ time: Nanoseconds) -> String {
        let tenths = (time.count + 50_000_000) / 100_000_000
        return tenths < 600 ? "\(tenths / 10).\(tenths % 10) s" : "\(tenths / 600) min \(tenths / 10 % 60) s"
    }
}
#endif
