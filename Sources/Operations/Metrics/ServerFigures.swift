import EventLoop
import HTTP
import Metrics
import Server
import System
import TokenService
import TokenStore

/// The server's counters and gauges at one time, from which the metrics, the status and the history take what they have in common.
struct ServerFigures: Sendable {
    /// Seconds since the machine's start, which neither a set clock nor a suspended machine disturbs.
    var uptime = 0.0
    var requests: [RequestCounts.Row] = []
    var getTime: Histogram.Reading?
    var postTime: Histogram.Reading?
    var openConnections: UInt64 = 0
    var accepted: UInt64 = 0
    /// Connections beyond the limit: those that got 503, and those that were closed at once.
    var refused: (answered: UInt64, closed: UInt64) = (0, 0)
    /// Requests that were not served although they could be read, by reason.
    var denied: [(word: String, count: UInt64)] = []
    var storeFailures: [(word: String, count: UInt64)] = []
    /// Of `limits.buffers` in use.
    var bufferBytes = 0
    var answers = CacheCounts()
    var sessions = CacheCounts()
    var store = StoreMetrics()
    /// The data folder's file system; nil until it has answered.
    var disk: FileSystem.Space?
    var process = ProcessMetrics()
}

extension ServerFigures {
    /// Reads the present figures.
    ///
    /// Reads files and takes the cache's locks one by one: do not call it on a loop's thread.
    init(of server: Server) {
        let contexts = server.contexts
        uptime = SystemUptime.now
        requests = contexts.requests
        (getTime, postTime) = (contexts.reading(\.getTime), contexts.reading(\.postTime))
        openConnections = contexts.openConnections
        accepted = contexts.sum { $0.accepted.value }
        refused = (contexts.sum { $0.refused.value }, contexts.sum { $0.dropped.value })
        denied = contexts.counts(\.accessFailures)
        storeFailures = contexts.counts(\.storeFailures)
        bufferBytes = contexts.first?.bufferBudget.takenBytes ?? 0
        (answers, sessions) = (server.answers.counts, server.access.sessions.counts)
        (store, disk, process) = (server.store.metrics, server.diskSpace, .now)
    }

    /// How many requests have a method and an outcome that meet a condition.
    func requests(where condition: (RequestCounts.Row) -> Bool) -> Double {
        Double(requests.reduce(0) { condition($1) ? $0 + $1.count : $0 })
    }

    var gets: Double { requests { $0.method == .get } }
}
