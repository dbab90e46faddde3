internal import EventLoop
internal import HTTP
internal import Metrics
internal import Server
internal import System
internal import TokenService
internal import TokenStore

extension HistoryReading {
    /// Reads a server's counters.
    ///
    /// Reads files: do not call it on a loop's thread.
    init(of server: Server) {
        let (workers, store, cache) = (server.workers, server.store.metrics, server.answers.counts)
        uptime = SystemUptime.now
        countRequests(workers.requestTable)
        for reason in AccessFailure.allCases { denied += workers.sum { $0.accessFailures.value(reason) } }
        refused = workers.sum { $0.refused.value + $0.dropped.value }
        (hits, misses) = (UInt64(max(0, cache.hits)), UInt64(max(0, cache.misses)))
        (getTime, postTime) = (workers.reading(\.getTime), workers.reading(\.postTime))
        (commitTime, syncTime) = (store.commitTime, store.syncTime)
        let usage = ResourceUsage.now
        processorSeconds = usage.processorSeconds
        memory = usage.residentBytes.map { Float($0) } ?? .nan
        connections = Float(workers.openConnections)
        cacheBytes = Float(cache.bytes)
        bufferBytes = Float(max(0, workers.first?.bufferBudget.takenBytes ?? 0))
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
        outcomes = RequestCounts.byOutcome(table)
        let columns = RequestCounts.outcomes.count
        for method in Method.allCases {
            for (column, outcome) in RequestCounts.outcomes.enumerated() {
                let count = table[RequestCounts.row(of: method) * columns + column]
                switch method {
                case .get:
                    get += count
                    if outcome.isNotFound { notFound += count }
                case .post: post += count
                default: other += count
                }
                if outcome.isError { errors += count }
                if outcome.isFailureOfServer { failures += count }
            }
        }
    }
}
