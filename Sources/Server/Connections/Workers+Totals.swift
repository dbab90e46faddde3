package import Metrics
internal import Synchronization

/// The sums of the loops' metrics.
extension [Worker] {
    package func sum(_ value: (LoopMetrics) -> UInt64) -> UInt64 {
        reduce(0) { $0 + value($1.metrics) }
    }

    package func reading(_ histogram: (LoopMetrics) -> Histogram) -> Histogram.Reading {
        dropFirst().reduce(histogram(self[0].metrics).reading) { $0 + histogram($1.metrics).reading }
    }

    package var openConnections: UInt64 {
        reduce(0) { $0 + UInt64(Swift.max(0, $1.connectionCount.load(ordering: .relaxed))) }
    }

    /// The requests by method and outcome, in the layout of `RequestCounts.table`.
    package var requestTable: [UInt64] {
        var table = RequestCounts.table
        for worker in self { worker.metrics.requests.add(to: &table) }
        return table
    }
}
