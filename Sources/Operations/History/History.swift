internal import Server
internal import Synchronization
internal import System
internal import TokenStore

/// The course of the server's figures in the last hour, a row for each ten seconds.
///
/// A row's position is the machine's uptime in seconds at its end, so that setting the clock moves no row, and the time during
/// which the process or the machine was stopped is a gap.
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
                begin: reading, last: reading, peaks: Self.noPeaks(figures)))
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

/// Adds a server's figures to a history once a second.
struct HistorySampler: Sendable {
    let history: History
    private let server: Server
    private let version: String

    /// - Parameter version: This program's version.
    init(_ server: Server, version: String) {
        self.server = server
        self.version = version
        let figures = HistoryFigure.all(isRemote: server.store.metrics.remote != nil)
        history = History(of: figures, from: HistoryReading(of: server))
    }

    /// Runs until its task is cancelled, on one of Swift's shared threads, as it reads files.
    func run() async {
        var events = [HistoryEvent(.start, "token-cache \(version) has started")]
        // A store that fails from the start is an event. A backup that was made before the start is not.
        var before = ServerSituation(of: server)
        before.reasons = []
        while (try? await Task.sleep(for: Self.pause(at: SystemUptime.now))) != nil {
            let now = ServerSituation(of: server)
            events += now.events(since: before)
            history.add(HistoryReading(of: server), events)
            (before, events) = (now, [])
        }
    }

    /// How long to wait for the middle of the next second: from there, a reading that is a little early or late still counts for
    /// its own second.
    static func pause(at uptime: Double) -> Duration {
        .seconds(uptime.rounded(.down) + 1.5 - uptime)
    }
}

/// Something that happened to the server and may explain why the figures changed.
struct HistoryEvent: Sendable, Equatable {
    enum Kind: String, Sendable {
        case start, reload, fault, recovery, failover, backup, drain
    }

    let kind: Kind
    /// For operators, without secrets.
    let text: String
    /// Whether something has failed, which operators should look at.
    let isFailure: Bool

    /// An event and its place in the order of all events.
    struct Placed: Sendable, Equatable {
        /// 1 for the first event since the start.
        let number: UInt64
        let position: UInt32
        let event: HistoryEvent
    }

    /// The longest text; what is longer ends with an ellipsis.
    static let textLimit = 300

    init(_ kind: Kind, _ text: String, isFailure: Bool = false) {
        self.kind = kind
        self.isFailure = isFailure
        self.text = text.count <= Self.textLimit ? text : text.prefix(Self.textLimit - 1) + "…"
    }
}
