internal import Metrics

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
    /// Requests by outcome, in the order of `RequestCounts.outcomes`.
    var outcomes: [UInt64] = []
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
