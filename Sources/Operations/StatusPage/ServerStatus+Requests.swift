internal import HTTP
internal import Server
internal import System

extension ServerStatus.Requests {
    /// Adds up the counts of all loops.
    ///
    /// - Parameter history: Knows the counts of a minute ago.
    init(_ server: Server, _ history: History) {
        let table = server.workers.requestTable
        let columns = RequestCounts.outcomes.count
        func total(_ method: Method) -> UInt64 {
            table[(RequestCounts.row(of: method) * columns)...].prefix(columns).reduce(0, +)
        }
        let counts = RequestCounts.byOutcome(table)
        let lastMinute = history.lastMinute(of: counts, at: SystemUptime.now)
        var (errors, notFound): (UInt64, UInt64) = (0, 0)
        var codes: [Code] = []
        for (index, outcome) in RequestCounts.outcomes.enumerated() where counts[index] > 0 {
            if outcome.isNotFound { notFound += counts[index] }
            guard outcome.isError else { continue }
            errors += counts[index]
            codes.append(
                Code(
                    status: outcome.statusNumber, code: outcome.errorCode, count: counts[index],
                    lastMinute: lastMinute[index]))
        }
        self.init(
            get: total(.get), post: total(.post), other: table.reduce(0, +) - total(.get) - total(.post),
            errors: errors, notFound: notFound,
            byListener: server.listenerRequests.map { Listener(name: $0.name, requests: $0.count) },
            byCode: codes.sorted { $0.count > $1.count }
        )
    }
}
