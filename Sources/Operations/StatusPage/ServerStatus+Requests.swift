internal import Server

extension ServerStatus.Requests {
    /// Adds up what the loops have counted.
    init(_ workers: [Worker]) {
        let table = workers.requestTable
        let columns = RequestCounts.outcomes.count
        func total(_ row: Int) -> UInt64 { table[row * columns..<(row + 1) * columns].reduce(0, +) }
        let rows = table.count / columns
        var errors: UInt64 = 0
        for (index, count) in table.enumerated() where RequestCounts.outcomes[index % columns].isError {
            errors += count
        }
        self.init(
            get: total(0), post: total(1), other: (2..<rows).reduce(0) { $0 + total($1) }, errors: errors
        )
    }
}
