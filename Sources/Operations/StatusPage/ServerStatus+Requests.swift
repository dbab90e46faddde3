internal import Server

extension ServerStatus.Requests {
    /// Adds up the counts of all loops.
    init(_ workers: [Worker]) {
        let table = workers.requestTable
        let columns = RequestCounts.outcomes.count
        func total(_ row: RequestCounts.Row) -> UInt64 {
            table[row.rawValue * columns..<(row.rawValue + 1) * columns].reduce(0, +)
        }
        var errors: UInt64 = 0
        for (index, count) in table.enumerated() where RequestCounts.outcomes[index % columns].isError {
            errors += count
        }
        self.init(
            get: total(.get), post: total(.post), other: table.reduce(0, +) - total(.get) - total(.post),
            errors: errors
        )
    }
}
