internal import EventLoop
internal import Glibc
internal import HTTP
internal import Metrics
internal import Server
internal import System
internal import TokenService
internal import TokenStore

/// The server's counters and gauges at one time; two readings make the figures of the time between them.
struct HistoryReading: Sendable {
    /// Seconds since the machine's start, which neither a set clock nor a suspended machine disturbs.
    var uptime = 0.0

    // Counters:
    var get: UInt64 = 0
    var post: UInt64 = 0
    var other: UInt64 = 0
    /// GETs that found no token.
    var notFound: UInt64 = 0
    var errors: UInt64 = 0
    var failures: UInt64 = 0
    var denied: UInt64 = 0
    var refused: UInt64 = 0
    var retries: UInt64 = 0
    var hits: UInt64 = 0
    var misses: UInt64 = 0
    var processorSeconds = 0.0
    var getTime: Histogram.Reading?
    var postTime: Histogram.Reading?
    var commitTime: Histogram.Reading?
    var syncTime: Histogram.Reading?
    var readTime: Histogram.Reading?

    // Gauges; NaN for those that the store does not have:
    var connections = Float.nan
    var memory = Float.nan
    var cacheBytes = Float.nan
    var bufferBytes = Float.nan
    var tokens = Float.nan
    var sessions = Float.nan
    var storeBytes = Float.nan
    var diskFree = Float.nan
    var waiting = Float.nan

    /// A figure of the time since an earlier reading; NaN if there is none, such as a percentile without requests.
    func value(of figure: HistoryFigure, since earlier: HistoryReading) -> Float {
        switch figure {
        case .get: rate(\.get, since: earlier)
        case .post: rate(\.post, since: earlier)
        case .other: rate(\.other, since: earlier)
        case .errors: rate(\.errors, since: earlier)
        case .failures: rate(\.failures, since: earlier)
        case .denied: rate(\.denied, since: earlier)
        case .refused: rate(\.refused, since: earlier)
        case .retries: rate(\.retries, since: earlier)
        case .getMedian: quantile(0.5, \.getTime, since: earlier)
        case .getSlow: quantile(0.99, \.getTime, since: earlier)
        case .postMedian: quantile(0.5, \.postTime, since: earlier)
        case .postSlow: quantile(0.99, \.postTime, since: earlier)
        case .commitMedian: quantile(0.5, \.commitTime, since: earlier)
        case .commitSlow: quantile(0.99, \.commitTime, since: earlier)
        case .syncSlow: quantile(0.99, \.syncTime, since: earlier)
        case .readMedian: quantile(0.5, \.readTime, since: earlier)
        case .readSlow: quantile(0.99, \.readTime, since: earlier)
        case .hitRatio: hitRatio(since: earlier)
        case .notFoundRatio: notFoundRatio(since: earlier)
        case .processor:
            Float(
                max(0, processorSeconds - earlier.processorSeconds)
                    / max(uptime - earlier.uptime, .leastNonzeroMagnitude))
        case .connections: connections
        case .memory: memory
        case .cacheBytes: cacheBytes
        case .bufferBytes: bufferBytes
        case .tokens: tokens
        case .sessions: sessions
        case .storeBytes: storeBytes
        case .diskFree: diskFree
        case .waiting: waiting
        }
    }

    private func rate(_ counter: (HistoryReading) -> UInt64, since earlier: HistoryReading) -> Float {
        let duration = uptime - earlier.uptime
        guard duration > 0 else { return .nan }
        return Float(Double(Self.increase(counter(self), since: counter(earlier))) / duration)
    }

    private func quantile(
        _ share: Double, _ histogram: (HistoryReading) -> Histogram.Reading?, since earlier: HistoryReading
    ) -> Float {
        guard let now = histogram(self), let before = histogram(earlier) else { return .nan }
        return now.quantile(share, since: before).map { Float($0) } ?? .nan
    }

    private func hitRatio(since earlier: HistoryReading) -> Float {
        let (hits, misses) = (Self.increase(hits, since: earlier.hits), Self.increase(misses, since: earlier.misses))
        return hits + misses > 0 ? Float(Double(hits) / Double(hits + misses)) : .nan
    }

    private func notFoundRatio(since earlier: HistoryReading) -> Float {
        let gets = Self.increase(get, since: earlier.get)
        guard gets > 0 else { return .nan }
        return Float(min(1, Double(Self.increase(notFound, since: earlier.notFound)) / Double(gets)))
    }

    /// The loops' counters are not read at the same instant, so that a sum may seem to have shrunk.
    private static func increase(_ count: UInt64, since earlier: UInt64) -> UInt64 {
        count > earlier ? count - earlier : 0
    }
}

extension HistoryReading {
    /// Reads a server's counters.
    ///
    /// Reads files: do not call it on a loop's thread.
    init(of server: Server) {
        let (contexts, store, cache) = (server.contexts, server.store.metrics, server.answers.counts)
        uptime = SystemUptime.now
        countRequests(contexts.requestTable)
        for reason in AccessFailure.allCases { denied += contexts.sum { $0.accessFailures.value(reason) } }
        refused = contexts.sum { $0.refused.value + $0.dropped.value }
        (hits, misses) = (UInt64(max(0, cache.hits)), UInt64(max(0, cache.misses)))
        (getTime, postTime) = (contexts.reading(\.getTime), contexts.reading(\.postTime))
        (commitTime, syncTime) = (store.commitTime, store.syncTime)
        let usage = ResourceUsage.now
        processorSeconds = usage.processorSeconds
        memory = usage.residentBytes.map { Float($0) } ?? .nan
        connections = Float(contexts.openConnections)
        cacheBytes = Float(cache.bytes)
        bufferBytes = Float(max(0, contexts.first?.bufferBudget.takenBytes ?? 0))
        tokens = store.tokens.map { Float($0) } ?? .nan
        sessions = store.sessions.map { Float($0) } ?? .nan
        storeBytes = store.databaseBytes.map { Float($0 + (store.walBytes ?? 0)) } ?? .nan
        diskFree = server.diskSpace.space.map { Float($0.freeBytes) } ?? .nan
        guard let remote = store.remote else { return }
        readTime = remote.readTime
        retries = remote.retries.reduce(0) { $0 + $1.count }
        waiting = Float(remote.waitingRequests)
    }

    private mutating func countRequests(_ table: [UInt64]) {
        let columns = RequestCounts.outcomes.count
        for method in Method.allCases {
            for (column, outcome) in RequestCounts.outcomes.enumerated() {
                let count = table[RequestCounts.row(of: method) * columns + column]
                switch method {
                case .get:
                    get += count
                    if outcome.kind == .notFound { notFound += count }
                case .post: post += count
                default: other += count
                }
                switch outcome.kind {
                case .done, .notFound: break
                case .refused: errors += count
                case .failed:
                    errors += count
                    failures += count
                }
            }
        }
    }
}

/// What the process uses, read with less work than `ProcessMetrics`, because it is read every second.
struct ResourceUsage {
    /// In user and kernel mode.
    let processorSeconds: Double
    /// Nil without /proc.
    let residentBytes: Int?

    /// The current figures; reads a file of the kernel.
    static var now: ResourceUsage {
        var usage = rusage()
        _ = unsafe getrusage(Int32(RUSAGE_SELF.rawValue), &usage)
        let times = [usage.ru_utime, usage.ru_stime]
        // Pages: the whole size, and those that are resident (proc(5)).
        let pages = TextFile.contents(of: "/proc/self/statm")?.split(separator: " ").dropFirst().first
        return ResourceUsage(
            processorSeconds: times.reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6 },
            residentBytes: pages.flatMap { Int($0) }.map { $0 * sysconf(Int32(_SC_PAGESIZE)) }
        )
    }
}

/// What is compared once a second to notice events.
struct ServerSituation: Sendable {
    /// Why the server is not ready; empty if it is.
    var reasons: [String] = []
    var isStopping = false
    var reload = LastReload(successTime: 0)
    /// Nil if there was no backup.
    var backup: BackupRecord?
    /// How often another server has become the database's primary.
    var failovers: UInt64 = 0
    /// The database's primary; nil while none is known, and for a store on this machine.
    var primary: String?

    /// What has happened since an earlier situation.
    func events(since earlier: ServerSituation) -> [HistoryEvent] {
        var events: [HistoryEvent] = []
        if reload.number != earlier.reload.number {
            events.append(
                HistoryEvent(.reload, "\(reload.reason): \(reload.outcome)", isFailure: reload.wasRefused))
        }
        if let backup, backup != earlier.backup {
            events.append(
                backup.isSuccessful
                    ? HistoryEvent(.backup, "a backup has succeeded")
                    : HistoryEvent(.backup, "a backup has failed", isFailure: true))
        }
        if failovers > earlier.failovers {
            events.append(HistoryEvent(.failover, "the primary is \(primary ?? "not known")"))
        }
        if isStopping && !earlier.isStopping {
            events.append(HistoryEvent(.drain, "the server is stopping"))
        } else if reasons != earlier.reasons && !isStopping {
            events.append(
                reasons.isEmpty
                    ? HistoryEvent(.recovery, "ready again")
                    : HistoryEvent(.fault, "not ready: \(reasons.joined(separator: "; "))", isFailure: true))
        }
        return events
    }
}

extension ServerSituation {
    /// The present situation.
    init(of server: Server) {
        let metrics = server.store.metrics
        let remote = metrics.remote
        self.init(
            reasons: server.readiness.reasons, isStopping: server.isStopping, reload: server.lastReload,
            backup: metrics.lastBackup, failovers: remote?.failovers ?? 0, primary: remote?.primary?.name
        )
    }
}
