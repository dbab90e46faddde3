#if PostgreSQL
import System
import TokenStore

/// Whether clients' requests can be carried out, and what operators are told when that changes.
///
/// Trouble is reported once when it begins and once when it is over, however many requests it concerns. This value has no clock:
/// the caller tells it what happens, and when, and reports the events that it returns.
struct StoreHealth: Sendable {
    /// How long the server stays ready in spite of trouble, so that no load balancer drops it during a short failover.
    static let grace = Nanoseconds(.seconds(3))
    /// Trouble with requests is over when one has succeeded, and none has failed for this long.
    static let calm = Nanoseconds(.seconds(2))
    /// The least time between two reports of lost connections, and between two reports of why no primary is found.
    static let quiet = Nanoseconds(.seconds(10))

    /// How many connections are open, by the names of their hosts.
    private(set) var connections: [String: Int] = [:]
    /// Since when there is no connection; nil while there is one.
    private var withoutSince: MonotonicTime?
    /// Why the last search found no primary; nil if a connection has been made since.
    ///
    /// Earlier connections may still be open.
    private(set) var reasons: String?
    private var wasConnected = false
    /// When the last outage was over.
    private var reconnectedAt: MonotonicTime?
    /// Whether operators were told of an outage, and not yet of its end.
    private var isTold = false
    /// When operators were last told of a lost connection; which reasons they were last told in this outage, and when.
    private var lastLoss: MonotonicTime?
    private var lastReasons: (text: String, at: MonotonicTime)?
    /// The failures of writes (true) and of reads (false).
    private var failures: [Bool: Failure] = [:]
    private let places: String

    /// Requests that fail although there are connections.
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

    /// Whether a success or a connection would end some trouble.
    var isTroubled: Bool { withoutSince != nil || !failures.isEmpty }

    /// Whether requests of a kind have failed, but none of late.
    ///
    /// Then only a trial can show that they no longer fail, as a load balancer may send no request to a server that is not ready.
    func needsTrial(ofWrites areWrites: Bool, at now: MonotonicTime) -> Bool {
        guard let failure = failures[areWrites] else { return false }
        return now - failure.last >= Self.calm
    }

    /// Why requests fail; nil if they do not, or have only just begun to.
    func fault(at now: MonotonicTime) -> StoreError? {
        if let withoutSince, !wasConnected || now - withoutSince > Self.grace {
            let reasons = reasons ?? "none of \(places) has answered yet"
            return .unavailable(StoreFault("PostgreSQL has no usable primary: \(reasons)", mayRetry: true))
        }
        let lasting = failures.filter { now - $1.since > Self.grace }
        return lasting[true].map { .write($0.fault) } ?? lasting[false].map { .read($0.fault) }
    }

    // MARK: - Connections

    /// A connection was made.
    ///
    /// - Parameters:
    ///   - host: The name of its host.
    ///   - server: What it leads to, such as `PostgreSQL 15.18 at db1:5432 (timeline 1)`.
    mutating func noteConnected(_ host: String, _ server: String, at now: MonotonicTime) -> [StoreEvent] {
        connections[host, default: 0] += 1
        reasons = nil
        guard let since = withoutSince else { return [] }
        defer {
            (withoutSince, lastReasons, isTold) = (nil, nil, false)
            (reconnectedAt, wasConnected) = (now, true)
        }
        guard wasConnected else { return [.own(.note, "connected to \(server)")] }
        return isTold ? [.own(.note, "connected to \(server), after \(Self.text(now - since))")] : []
    }

    /// A connection was lost, or given up.
    ///
    /// - Parameter isExpected: Whether it was given up because another server is the primary.
    mutating func noteLost(
        _ host: String, _ error: PostgresError, isExpected: Bool = false, at now: MonotonicTime
    ) -> [StoreEvent] {
        connections[host] = connections[host].flatMap { $0 > 1 ? $0 - 1 : nil }
        if connections.isEmpty { withoutSince = now }
        guard !isExpected || connections.isEmpty, lastLoss.map({ now - $0 >= Self.quiet }) ?? true else {
            return []
        }
        (lastLoss, isTold) = (now, true)
        let text = "the connection to PostgreSQL at \(host) is lost, looking for the primary: \(error)"
        return [.own(.warning, text)]
    }

    /// All hosts were asked, and none is a primary.
    ///
    /// - Parameter reasons: The reason for each host, in one text.
    mutating func noteNotFound(_ reasons: String, at now: MonotonicTime) -> [StoreEvent] {
        // Also noted while earlier connections are open: requests that get none fail with these reasons.
        self.reasons = reasons
        guard let since = withoutSince else { return [] }
        if let (text, at) = lastReasons {
            guard text != reasons, now - at >= Self.quiet else { return [] }
        } else if wasConnected, now - since < Self.grace {
            return []
        }
        (lastReasons, isTold) = ((reasons, now), true)
        let time = wasConnected ? " for \(Self.text(now - since))" : ""
        let text = """
            PostgreSQL has no usable primary\(time), clients are told that tokens can be neither stored nor read; this server \
            goes on by itself as soon as there is one: \(reasons)
            """
        return [.own(.fault, text)]
    }

    // MARK: - Requests

    /// A request has failed because of the database or the way to it.
    ///
    /// - Parameter began: When the request began.
    mutating func noteFailure(
        _ fault: StoreFault, isWrite: Bool, since began: MonotonicTime, at now: MonotonicTime
    ) -> [StoreEvent] {
        if withoutSince != nil { return [] }
        // A request from before the last outage has run out of time: that is no new trouble.
        if let reconnectedAt, began < reconnectedAt { return [] }
        guard failures[isWrite] == nil else {
            failures[isWrite]?.count += 1
            failures[isWrite]?.last = now
            failures[isWrite]?.fault = fault
            return []
        }
        failures[isWrite] = Failure(since: began, last: now, count: 1, fault: fault)
        let what = isWrite ? "stored" : "read"
        return [.own(.fault, "tokens cannot be \(what), clients are told so: \(fault)")]
    }

    /// Requests, or a trial, have succeeded.
    mutating func noteSuccess(isWrite: Bool, at now: MonotonicTime) -> [StoreEvent] {
        guard let failure = failures[isWrite], now - failure.last >= Self.calm else { return [] }
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
