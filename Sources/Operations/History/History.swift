internal import Synchronization

/// The course of the server's figures: the last hour by the second, the last day by the minute, in fixed memory.
///
/// A row's position is the machine's uptime in seconds at its end, so that setting the clock moves no row, and the time during
/// which the process or the machine was stopped is a gap. The rows take at most 0.6 MB, after a day of running. It also keeps how
/// often each outcome had been counted at each second of the last minute, for the errors of that minute.
///
/// Any thread.
final class History: Sendable {
    /// Which rows are asked for.
    enum Resolution: String, CaseIterable, Sendable {
        case second, minute

        /// How many seconds a row covers.
        var step: UInt32 { self == .second ? 1 : 60 }
        /// How many rows are kept.
        var capacity: Int { self == .second ? 3_600 : 1_440 }
    }

    /// What one answer contains.
    struct Excerpt: Sendable {
        let rows: HistoryRing.Rows
        let events: [HistoryEvent.Placed]
    }

    private struct State: Sendable {
        var seconds: HistoryRing
        var minutes: HistoryRing
        /// The readings before the present second and minute.
        var second: HistoryReading
        var minute: HistoryReading
        /// The largest figures of the present minute's seconds.
        var peaks: [Float]
        /// Requests by outcome.
        var outcomes: RecentCounts
        var events: [HistoryEvent.Placed] = []
        var lastEvent: UInt64 = 0
    }

    /// The columns of a row.
    let figures: [HistoryFigure]
    private let state: Mutex<State>

    /// How many rows one answer contains at most.
    static let excerptLimit = 600
    /// How many events are kept.
    static let eventLimit = 100

    /// - Parameters:
    ///   - figures: Those of the server's store.
    ///   - reading: The counters now.
    init(of figures: [HistoryFigure], from reading: HistoryReading) {
        self.figures = figures
        state = Mutex(
            State(
                seconds: HistoryRing(width: figures.count, capacity: Resolution.second.capacity),
                minutes: HistoryRing(width: figures.count, capacity: Resolution.minute.capacity),
                second: reading, minute: reading, peaks: Self.noPeaks(figures),
                outcomes: RecentCounts(reading.outcomes, at: reading.uptime)
            )
        )
    }

    /// The bytes that a full history takes, without its events.
    var largestSize: Int { state.withLock { $0.seconds.largestSize + $0.minutes.largestSize } }

    /// Adds the figures since the reading before, and what happened meanwhile.
    func add(_ reading: HistoryReading, _ events: [HistoryEvent] = []) {
        let position = UInt32(clamping: Int64(reading.uptime))
        state.withLock { state in
            for event in events {
                state.lastEvent += 1
                state.events.append(.init(number: state.lastEvent, position: position, event: event))
            }
            state.events.removeFirst(max(0, state.events.count - Self.eventLimit))
            // The second is not over if this reading came early.
            guard position > UInt32(clamping: Int64(state.second.uptime)) else { return }
            let second = row(reading, since: state.second)
            state.seconds.append(second, at: position)
            // Of a figure and none, the figure.
            state.peaks = zip(state.peaks, second).map { Float.maximum($0, $1) }
            let step = Resolution.minute.step
            if position / step > UInt32(clamping: Int64(state.minute.uptime)) / step {
                let whole = row(reading, since: state.minute)
                let minute = figures.indices.map { figures[$0].isPeak ? state.peaks[$0] : whole[$0] }
                state.minutes.append(minute, at: position / step * step)
                (state.minute, state.peaks) = (reading, Self.noPeaks(figures))
            }
            state.outcomes.add(reading.outcomes, at: reading.uptime)
            state.second = reading
        }
    }

    /// Rows and events from a position on, as many rows as one answer may contain.
    func excerpt(_ resolution: Resolution, from position: UInt32) -> Excerpt {
        state.withLock { state in
            let ring = resolution == .second ? state.seconds : state.minutes
            let rows = ring.rows(from: position, limit: Self.excerptLimit)
            let end = rows.isCut ? rows.positions.last ?? position : .max
            return Excerpt(
                rows: rows, events: state.events.filter { $0.position >= position && $0.position <= end }
            )
        }
    }

    /// By how much the count of each outcome has grown in the last minute.
    ///
    /// - Parameters:
    ///   - outcomes: The counts now, in the order of `RequestCounts.outcomes`.
    ///   - uptime: The machine's, now.
    func lastMinute(of outcomes: [UInt64], at uptime: Double) -> [UInt64] {
        state.withLock { $0.outcomes.growth(to: outcomes, at: uptime) }
    }

    private static func noPeaks(_ figures: [HistoryFigure]) -> [Float] {
        Array(repeating: .nan, count: figures.count)
    }

    private func row(_ reading: HistoryReading, since earlier: HistoryReading) -> [Float] {
        figures.map { reading.value(of: $0, since: earlier) }
    }
}
