/// Events that a client can cause in any number, such as refusals: the first of a client and a kind is a line at once, the others
/// of a minute are one line with their number, so that nobody fills the disk.
///
/// Used by one thread at a time.
struct RepeatedEvents {
    /// What the events have in common.
    private var series: [AuditEvent: Series] = [:]

    private struct Series {
        /// The events that no line has yet.
        var count: UInt64
        /// When the last line was written, in microseconds since 1970.
        var writtenAt: Int64
    }

    private static let period: Int64 = 60_000_000
    /// The most series that tell clients apart; the events of further clients are added up by their kind alone.
    static let limit = 1_000

    /// Whether an event is only counted, as a line of its client and kind was written within the last minute.
    ///
    /// - Parameter event: Without what tells it from others of its client and kind.
    mutating func count(_ event: AuditEvent, at now: Int64) -> Bool {
        var event = event
        if series[event] == nil, series.count >= Self.limit {
            (event.address, event.user, event.session) = (nil, nil, nil)
        }
        guard series[event] != nil else {
            series[event] = Series(count: 0, writtenAt: now)
            return false
        }
        add(event, 1)
        return true
    }

    /// The events that were counted in series whose last line is a minute old.
    mutating func takeDue(at now: Int64) -> [AuditEvent] {
        // Below zero the clock was set back.
        take({ !(0..<Self.period).contains(now - $0.writtenAt) }, thenFrom: now)
    }

    /// All events that were counted.
    mutating func takeAll() -> [AuditEvent] {
        take({ _ in true }, thenFrom: nil)
    }

    /// - Parameter time: When the next minute of a series begins that went on; nil if it ends.
    private mutating func take(_ isDue: (Series) -> Bool, thenFrom time: Int64?) -> [AuditEvent] {
        var sums: [AuditEvent] = []
        for (event, series) in series where isDue(series) {
            self.series[event] = series.count > 0 ? time.map { Series(count: 0, writtenAt: $0) } : nil
            guard series.count > 0 else { continue }
            var sum = event
            sum.count = series.count
            sums.append(sum)
        }
        return sums
    }

    /// Takes back what could not be written.
    mutating func restore(_ sums: [AuditEvent]) {
        for sum in sums {
            var event = sum
            event.count = nil
            add(event, sum.count ?? 0)
        }
    }

    private mutating func add(_ event: AuditEvent, _ count: UInt64) {
        series[event, default: Series(count: 0, writtenAt: 0)].count += count
    }
}
