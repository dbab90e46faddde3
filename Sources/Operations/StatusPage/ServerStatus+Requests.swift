internal import Server

extension ServerStatus.Requests {
    /// Adds up the counts of all loops.
    init(_ server: Server) {
        let table = server.workers.requestTable
        let columns = RequestCounts.outcomes.count
        func total(_ row: RequestCounts.Row) -> UInt64 {
            table[row.rawValue * columns..<(row.rawValue + 1) * columns].reduce(0, +)
        }
        var (errors, notFound): (UInt64, UInt64) = (0, 0)
        for (index, count) in table.enumerated() {
            let outcome = RequestCounts.outcomes[index % columns]
            if outcome.isError { errors += count }
            if outcome.isNotFound { notFound += count }
        }
        self.init(
            get: total(.get), post: total(.post), other: table.reduce(0, +) - total(.get) - total(.post),
            errors: errors, notFound: notFound,
            byListener: server.listenerRequests.map { Listener(name: $0.name, requests: $0.count) },
            byCode: Self.errors(in: table)
        )
    }

    /// How often each error was answered, whatever the method of the request; the most frequent error comes first.
    private static func errors(in table: [UInt64]) -> [Code] {
        let columns = RequestCounts.outcomes.count
        return RequestCounts.outcomes.enumerated().compactMap { column, outcome in
            let count = stride(from: column, to: table.count, by: columns).reduce(0) { $0 + table[$1] }
            guard outcome.isError, count > 0 else { return nil }
            return Code(status: outcome.statusNumber, code: outcome.errorCode, count: count)
        }.sorted { $0.count > $1.count }
    }
}
