/// By how much counters have grown in the last minute, in fixed memory: their values at each second of it.
struct RecentCounts: Sendable {
    private struct Reading: Sendable {
        /// Seconds since the machine's start.
        let uptime: Double
        let counts: [UInt64]
    }

    /// The oldest first; never empty.
    private var readings: [Reading]

    /// In seconds.
    static let period = 60.0
    /// One reading for each second, the one that the minute begins with, and one for clocks that do not tick evenly.
    static let capacity = Int(period) + 2

    init(_ counts: [UInt64], at uptime: Double) {
        readings = [Reading(uptime: uptime, counts: counts)]
        readings.reserveCapacity(Self.capacity + 1)
    }

    /// How many readings are kept.
    var count: Int { readings.count }

    /// Adds the counts at a time after that of the reading before; called at most once a second.
    mutating func add(_ counts: [UInt64], at uptime: Double) {
        readings.append(Reading(uptime: uptime, counts: counts))
        // The newest reading from before the minute stays, because the minute begins with it.
        let begin = readings.lastIndex { $0.uptime <= uptime - Self.period } ?? 0
        readings.removeFirst(max(begin, readings.count - Self.capacity))
    }

    /// By how much each count has grown in the minute before a time, or since the first reading if that is less.
    ///
    /// A count that seems to have shrunk, as the loops are not read at the same instant, has not grown.
    func growth(to counts: [UInt64], at uptime: Double) -> [UInt64] {
        let begin = readings.last { $0.uptime <= uptime - Self.period } ?? readings[0]
        return zip(counts, begin.counts).map { now, before in now > before ? now - before : 0 }
    }
}
