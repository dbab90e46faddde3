import FoundationEssentials
import HTTP
import Server
import Synchronization
import System
import TokenStore

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

    private struct State: Sendable {
        /// Those of full ten seconds, the oldest first.
        var rows: [Row] = []
        /// The reading at the beginning of the present ten seconds, and the last one.
        var begin: ServerFigures
        var last: ServerFigures
        /// The largest figures of the seconds since `begin`.
        var peaks: [Float]
        var events: [HistoryEvent] = []
        var lastEvent: UInt64 = 0
    }

    /// The columns of a row.
    private let figures: [HistoryFigure]
    private let state: Mutex<State>

    /// How many seconds a row covers.
    static let step: UInt32 = 10
    /// How many rows are kept: an hour's, some 50 KB.
    static let rowLimit = 360
    /// How many events are kept.
    static let eventLimit = 100

    /// - Parameters:
    ///   - figures: The columns of a row.
    ///   - reading: The counters now.
    init(of figures: [HistoryFigure] = HistoryFigure.all, from reading: ServerFigures) {
        self.figures = figures
        state = Mutex(
            State(
                begin: reading, last: reading, peaks: Self.noPeaks(figures)))
    }

    /// Adds the figures since the reading before, and what happened meanwhile; called once a second, so that peaks are kept.
    func add(_ reading: ServerFigures, _ events: [HistoryEvent] = []) {
        let position = Self.position(reading)
        state.withLock { state in
            for var event in events {
                state.lastEvent += 1
                (event.number, event.position) = (state.lastEvent, position)
                state.events.append(event)
            }
            state.events.removeFirst(max(0, state.events.count - Self.eventLimit))
            // The second is not over if this reading came early.
            guard position > Self.position(state.last) else { return }
            for (index, figure) in figures.enumerated() where figure.isPeak {
                // If one of them is NaN, the result is the other.
                state.peaks[index] = Float.maximum(state.peaks[index], figure.value(reading, state.last))
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
    func excerpt(from position: UInt32) -> (rows: [Row], events: [HistoryEvent]) {
        state.withLock { state in
            var rows = state.rows
            let last = Self.position(state.last)
            if last > Self.position(state.begin) { rows.append(Row(position: last, values: values(state))) }
            return (rows.filter { $0.position >= position }, state.events.filter { $0.position >= position })
        }
    }

    /// The figures since the beginning of the present ten seconds.
    private func values(_ state: State) -> [Float] {
        figures.indices.map {
            figures[$0].isPeak ? state.peaks[$0] : figures[$0].value(state.last, state.begin)
        }
    }

    private static func noPeaks(_ figures: [HistoryFigure]) -> [Float] {
        Array(repeating: .nan, count: figures.count)
    }

    private static func position(_ reading: ServerFigures) -> UInt32 { UInt32(clamping: Int64(reading.uptime)) }
}

extension History {
    /// Answers a request.
    ///
    /// - Parameter query: What follows the question mark of the request's target.
    func answer(_ query: String) -> AdministrationAnswer {
        guard let first = Self.first(query) else {
            return .error(
                .badRequest, "allowed is since with the position of the first row, such as /history?since=0")
        }
        return AdministrationAnswer(
            json: answer(from: first, at: SystemUptime.now, Date().timeIntervalSince1970))
    }

    /// The position in a query such as `since=12`; 0 if the query is empty, and nil if it is anything else.
    static func first(_ query: String) -> UInt32? {
        let name = "since="
        return query.isEmpty ? 0 : query.hasPrefix(name) ? UInt32(query.dropFirst(name.count)) : nil
    }

    /// What `/history` returns: rows from a position on, column by column, so that an open page asks only for what is new.
    ///
    /// - Parameters:
    ///   - uptime: The machine's.
    ///   - time: By its clock, in seconds since 1970.
    func answer(from first: UInt32, at uptime: Double, _ time: Double) -> ObjectLiteral {
        let excerpt = excerpt(from: first)
        let columns = figures.enumerated().map { column, figure in
            (figure.name, excerpt.rows.map { Self.rounded($0.values[column]) })
        }
        return [
            "now": ["position": uptime, "time": time], "positions": excerpt.rows.map(\.position),
            "figures": Dictionary(uniqueKeysWithValues: columns), "events": excerpt.events,
        ]
    }

    /// A figure with four digits, or all digits of a whole number; nil if it was not measured.
    private static func rounded(_ value: Float) -> Double? {
        guard value.isFinite else { return nil }
        let exact = Double(value)
        guard value.rounded() != value else { return exact }
        var scale = 1.0
        while abs(exact) * scale < 1_000 { scale *= 10 }
        return (exact * scale).rounded() / scale
    }
}

extension History {
    /// Adds a server's figures once a second, until the task is cancelled; runs on one of Swift's shared threads, as it reads files.
    ///
    /// - Parameter version: This program's version.
    func record(_ server: Server, version: String) async {
        var events = [HistoryEvent(.start, "token-cache \(version) has started")]
        // A store that fails from the start is an event. A backup that was made before the start is not.
        var before = ServerSituation(of: server, server.store.metrics)
        before.reasons = []
        while (try? await Task.sleep(for: Self.pause(at: SystemUptime.now))) != nil {
            let figures = ServerFigures(of: server)
            let now = ServerSituation(of: server, figures.store)
            add(figures, events + now.events(since: before))
            (before, events) = (now, [])
        }
    }

    /// How long to wait for the middle of the next second: from there, a reading that is a little early or late still counts for
    /// its own second.
    static func pause(at uptime: Double) -> Duration {
        .seconds(uptime.rounded(.down) + 1.5 - uptime)
    }
}

/// Something that happened to the server and may explain why the figures changed, as `/history` returns it.
struct HistoryEvent: Encodable, Equatable, Sendable {
    enum Kind: String, Encodable, Sendable {
        case start, reload, fault, recovery, failover, backup, drain
    }

    let kind: Kind
    /// For operators, without secrets.
    let text: String
    /// Whether something has failed, which operators should look at.
    let failed: Bool
    /// 1 for the first event since the start; set when the event is added to a history, as is the position.
    var number: UInt64 = 0
    var position: UInt32 = 0

    /// The longest text; what is longer ends with an ellipsis.
    static let textLimit = 300

    init(_ kind: Kind, _ text: String, failed: Bool = false) {
        self.kind = kind
        self.failed = failed
        self.text = text.count <= Self.textLimit ? text : text.prefix(Self.textLimit - 1) + "…"
    }
}

/// The state that is compared once a second to notice events.
struct ServerSituation: Sendable {
    /// Why the server is not ready; empty if it is.
    var reasons: [String] = []
    var isStopping = false
    var reload = LastReload(successTime: 0)
    /// Nil if there was no backup.
    var backup: BackupRecord?
    /// How often another server has become the database's primary.
    var failovers: UInt64 = 0
    /// The database's primary; nil while none is known, and for a store on this machine.
    var primary: String?

    /// What has happened since an earlier situation.
    func events(since earlier: ServerSituation) -> [HistoryEvent] {
        var events: [HistoryEvent] = []
        if reload.number != earlier.reload.number {
            events.append(HistoryEvent(.reload, "\(reload.reason): \(reload.outcome)", failed: reload.wasRefused))
        }
        if let backup, backup != earlier.backup {
            let outcome = backup.isSuccessful ? "succeeded" : "failed"
            events.append(HistoryEvent(.backup, "a backup has \(outcome)", failed: !backup.isSuccessful))
        }
        if failovers > earlier.failovers {
            events.append(HistoryEvent(.failover, "the primary is \(primary ?? "not known")"))
        }
        if isStopping && !earlier.isStopping {
            events.append(HistoryEvent(.drain, "the server is stopping"))
        } else if reasons != earlier.reasons && !isStopping {
            events.append(
                reasons.isEmpty
                    ? HistoryEvent(.recovery, "ready again")
                    : HistoryEvent(.fault, "not ready: \(reasons.joined(separator: "; "))", failed: true))
        }
        return events
    }
}

extension ServerSituation {
    /// The present situation.
    init(of server: Server, _ store: StoreMetrics) {
        self.init(
            reasons: server.readiness.reasons, isStopping: server.isStopping, reload: server.lastReload,
            backup: store.lastBackup, failovers: store.remote?.failovers ?? 0, primary: store.remote?.primary?.name)
    }
}
