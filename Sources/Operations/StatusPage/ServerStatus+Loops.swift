internal import Metrics
internal import Server
internal import System

extension ServerStatus.Loop {
    /// The loops of a server; reads files.
    static func all(of server: Server) -> [ServerStatus.Loop] {
        let times = ThreadTimes.now
        return server.workers.enumerated().map { index, worker in
            let name = "loop \(index)"
            var table = RequestCounts.table
            worker.metrics.requests.add(to: &table)
            return ServerStatus.Loop(
                name: name, connections: [worker].openConnections,
                requests: table.reduce(0, +), processorSeconds: times[name] ?? 0
            )
        }
    }
}
