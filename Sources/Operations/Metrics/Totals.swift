internal import Metrics
internal import Synchronization

/// What the loops have counted, added up.
extension [Worker] {
    func sum(_ value: (LoopMetrics) -> UInt64) -> UInt64 {
        reduce(0) { $0 + value($1.metrics) }
    }

    func reading(_ histogram: (LoopMetrics) -> Histogram) -> Histogram.Reading {
        dropFirst().reduce(histogram(self[0].metrics).reading) { $0 + histogram($1.metrics).reading }
    }

    var openConnections: UInt64 {
        reduce(0) { $0 + UInt64(Swift.max(0, $1.connectionCount.load(ordering: .relaxed))) }
    }

    /// A row for each method, as `RequestCounts` has it.
    var requestTable: [UInt64] {
        var table = RequestCounts.table
        for worker in self { worker.metrics.requests.add(to: &table) }
        return table
    }

    var requests: ServerStatus.Requests {
        let table = requestTable
        let columns = RequestCounts.outcomes.count
        func total(_ row: Int) -> UInt64 { table[row * columns..<(row + 1) * columns].reduce(0, +) }
        let rows = table.count / columns
        var errors: UInt64 = 0
        for (index, count) in table.enumerated() where RequestCounts.outcomes[index % columns].isError {
            errors += count
        }
        return ServerStatus.Requests(
            get: total(0), post: total(1), other: (2..<rows).reduce(0) { $0 + total($1) }, errors: errors
        )
    }
}
