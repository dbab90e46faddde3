import EventLoop
import HTTP
import Metrics
import Server
import System
import TokenService
import TokenStore

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
}

/// A figure whose course over time is kept.
struct HistoryFigure: Sendable {
    /// In the answer of `/history`.
    let name: String
    /// Whether the value of ten seconds is the largest of its seconds, because a short peak matters.
    ///
    /// Otherwise it is that of the ten seconds as a whole or, for a state, that at their end.
    let isPeak: Bool
    /// The figure of the time between two readings; NaN if there is none, such as a percentile without requests.
    let value: @Sendable (_ now: HistoryReading, _ earlier: HistoryReading) -> Float

    static let all = rates + times + shares + states

    /// Per second.
    private static let rates = [
        rate("get", \.get), rate("post", \.post), rate("other", \.other),
        // Answers with a status from 400 on, or an error code other than 50002.
        rate("errors", \.errors, isPeak: true),
        // Answers with 50001 or a status from 500 on.
        rate("failures", \.failures, isPeak: true),
        // Requests that were not served for want of a valid credential.
        rate("denied", \.denied, isPeak: true),
        // Connections beyond the limit.
        rate("refused", \.refused, isPeak: true),
        // Requests that were sent to a database again.
        rate("retries", \.retries, isPeak: true),
    ]

    /// In seconds.
    private static let times = [
        time("get_p50", 0.5, \.getTime), time("get_p99", 0.99, \.getTime),
        time("post_p50", 0.5, \.postTime), time("post_p99", 0.99, \.postTime),
        time("commit_p50", 0.5, \.commitTime), time("commit_p99", 0.99, \.commitTime),
        time("sync_p99", 0.99, \.syncTime),
        time("read_p50", 0.5, \.readTime), time("read_p99", 0.99, \.readTime),
    ]

    private static let shares = [
        HistoryFigure(name: "hit_ratio", isPeak: false) { now, earlier in
            let (hits, misses) = (increase(\.hits, now, earlier), increase(\.misses, now, earlier))
            return hits + misses > 0 ? hits / (hits + misses) : .nan
        },
        // The GETs that were answered with 50002: no token is stored under the id.
        HistoryFigure(name: "not_found_ratio", isPeak: false) { now, earlier in
            let gets = increase(\.get, now, earlier)
            return gets > 0 ? min(1, increase(\.notFound, now, earlier) / gets) : .nan
        },
        // Of one core.
        HistoryFigure(name: "processor", isPeak: false) { now, earlier in
            Float(
                max(0, now.processorSeconds - earlier.processorSeconds)
                    / max(now.uptime - earlier.uptime, .leastNonzeroMagnitude))
        },
    ]

    private static let states = [
        state("connections", \.connections, isPeak: true),
        // Resident bytes of the process.
        state("memory", \.memory, isPeak: true),
        state("cache_bytes", \.cacheBytes, isPeak: true),
        // Bytes of `limits.buffers` in use.
        state("buffer_bytes", \.bufferBytes, isPeak: true),
        state("tokens", \.tokens), state("sessions", \.sessions),
        // Bytes of the database and its WAL.
        state("store_bytes", \.storeBytes),
        // Bytes that may still be written to the data folder's file system.
        state("disk_free", \.diskFree),
        // Requests that wait for a database.
        state("waiting", \.waiting, isPeak: true),
    ]

    private typealias Field<Value> = KeyPath<HistoryReading, Value> & Sendable

    private static func rate(_ name: String, _ counter: any Field<UInt64>, isPeak: Bool = false) -> HistoryFigure {
        HistoryFigure(name: name, isPeak: isPeak) { now, earlier in
            let duration = now.uptime - earlier.uptime
            return duration > 0 ? increase(counter, now, earlier) / Float(duration) : .nan
        }
    }

    private static func time(
        _ name: String, _ share: Double, _ histogram: any Field<Histogram.Reading?>
    ) -> HistoryFigure {
        HistoryFigure(name: name, isPeak: false) { now, earlier in
            guard let reading = now[keyPath: histogram], let before = earlier[keyPath: histogram] else { return .nan }
            return reading.quantile(share, since: before).map { Float($0) } ?? .nan
        }
    }

    private static func state(_ name: String, _ gauge: any Field<Float>, isPeak: Bool = false) -> HistoryFigure {
        HistoryFigure(name: name, isPeak: isPeak) { now, _ in now[keyPath: gauge] }
    }

    /// The loops' counters are not read at the same instant, so that a sum may seem to have shrunk.
    private static func increase(
        _ counter: any Field<UInt64>, _ now: HistoryReading, _ earlier: HistoryReading
    ) -> Float {
        let (count, before) = (now[keyPath: counter], earlier[keyPath: counter])
        return count > before ? Float(count - before) : 0
    }
}

extension HistoryReading {
    /// Reads a server's counters.
    ///
    /// Reads files: do not call it on a loop's thread.
    init(of server: Server) {
        let (contexts, store, cache) = (server.contexts, server.store.metrics, server.answers.counts)
        uptime = SystemUptime.now
        count(contexts.requests)
        for reason in AccessFailure.allCases { denied += contexts.sum { $0.accessFailures.value(reason) } }
        refused = contexts.sum { $0.refused.value + $0.dropped.value }
        (hits, misses) = (UInt64(max(0, cache.hits)), UInt64(max(0, cache.misses)))
        (getTime, postTime) = (contexts.reading(\.getTime), contexts.reading(\.postTime))
        (commitTime, syncTime) = (store.commitTime, store.syncTime)
        let process = ProcessMetrics.now
        (processorSeconds, memory) = (process.processorSeconds, Float(process.residentBytes))
        connections = Float(contexts.openConnections)
        cacheBytes = Float(cache.bytes)
        bufferBytes = Float(max(0, contexts.first?.bufferBudget.takenBytes ?? 0))
        tokens = store.tokens.map { Float($0) } ?? .nan
        sessions = store.sessions.map { Float($0) } ?? .nan
        storeBytes = store.databaseBytes.map { Float($0 + (store.walBytes ?? 0)) } ?? .nan
        diskFree = server.diskSpace.map { Float($0.freeBytes) } ?? .nan
        guard let remote = store.remote else { return }
        readTime = remote.readTime
        retries = remote.retries.reduce(0) { $0 + $1.count }
        waiting = Float(remote.waitingRequests)
    }

    private mutating func count(_ requests: [RequestCounts.Row]) {
        for (method, outcome, count) in requests {
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
