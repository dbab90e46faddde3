internal import Synchronization

/// The course of the server's figures in the last hour, a row for each ten seconds.
///
/// A row's position is the machine's uptime in seconds at its end, so that setting the clock moves no row, and the time during
/// which the process or the machine was stopped is a gap. It also keeps how often each outcome had been counted at each second
/// of the last minute, for the errors of that minute.
///
/// Any thread.
final class History: Sendable {
    /// The figures of ten seconds or, in the last row of an excerpt, of the part of them that is over.
    struct Row: Equatable, Sendable {
        /// A multiple of `History.step` once the ten seconds are over.
        let position: UInt32
        /// In the order of `History.figures`.
        let values: [Float]
    }

    /// What one answer contains.
    struct Excerpt: Sendable {
        let rows: [Row]
        let events: [HistoryEvent.Placed]
    }

    private struct State: Sendable {
        /// Those of full ten seconds, the oldest first.
        var rows: [Row] = []
        /// The readings at the begin of the present ten seconds, and the last one.
        var begin: HistoryReading
        var last: HistoryReading
        /// The largest figures of the seconds since `begin`.
        var peaks: [Float]
        /// Requests by outcome.
        var outcomes: RecentCounts
        var events: [HistoryEvent.Placed] = []
        var lastEvent: UInt64 = 0
    }

    /// The columns of a row.
    let figures: [HistoryFigure]
    private let state: Mutex<State>

    /// How many seconds a row covers.
    static let step: UInt32 = 10
    /// How many rows are kept: an hour's, some 50 KB.
    static let rowLimit = 360
    /// How many events are kept.
    static let eventLimit = 100

    /// - Parameters:
    ///   - figures: Those of the server's store.
    ///   - reading: The counters now.
    init(of figures: [HistoryFigure], from reading: HistoryReading) {
        self.figures = figures
        state = Mutex(
            State(
                begin: reading, last: reading, peaks: Self.noPeaks(figures),
                outcomes: RecentCounts(reading.outcomes, at: reading.uptime)))
    }

    /// Adds the figures since the reading before, and what happened meanwhile; called once a second, so that peaks are kept.
    func add(_ reading: HistoryReading, _ events: [HistoryEvent] = []) {
        let position = Self.position(reading)
        state.withLock { state in
            for event in events {
                state.lastEvent += 1
                state.events.append(.init(number: state.lastEvent, position: position, event: event))
            }
            state.events.removeFirst(max(0, state.events.count - Self.eventLimit))
            // The second is not over if this reading came early.
            guard position > Self.position(state.last) else { return }
            for (index, figure) in figures.enumerated() where figure.isPeak {
                // The larger one is the other if one of them is NaN.
                state.peaks[index] = Float.maximum(state.peaks[index], reading.value(of: figure, since: state.last))
            }
            state.last = reading
            state.outcomes.add(reading.outcomes, at: reading.uptime)
            let end = position / Self.step * Self.step
            guard end > Self.position(state.begin) else { return }
            state.rows.append(Row(position: end, values: values(state)))
            state.rows.removeFirst(max(0, state.rows.count - Self.rowLimit))
            (state.begin, state.peaks) = (reading, Self.noPeaks(figures))
        }
    }

    /// The rows and events from a position on.
    func excerpt(from position: UInt32) -> Excerpt {
        state.withLock { state in
            var rows = state.rows
            let last = Self.position(state.last)
            if last > Self.position(state.begin) { rows.append(Row(position: last, values: values(state))) }
            return Excerpt(
                rows: rows.filter { $0.position >= position }, events: state.events.filter { $0.position >= position })
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

    /// The figures since the begin of the present ten seconds.
    private func values(_ state: State) -> [Float] {
        figures.indices.map {
            figures[$0].isPeak ? state.peaks[$0] : state.last.value(of: figures[$0], since: state.begin)
        }
    }

    private static func noPeaks(_ figures: [HistoryFigure]) -> [Float] {
        Array(repeating: .nan, count: figures.count)
    }

    private static func position(_ reading: HistoryReading) -> UInt32 { UInt32(clamping: Int64(reading.uptime)) }
}
