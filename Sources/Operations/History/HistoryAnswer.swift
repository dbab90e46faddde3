internal import FoundationEssentials
internal import HTTP
internal import System

/// The answer of `/history`: rows from a position on, column by column, so that an open page asks only for what is new.
struct HistoryAnswer {
    private let history: History

    /// What is asked for.
    struct Query: Equatable {
        var resolution = History.Resolution.second
        /// The position of the first row.
        var since: UInt32 = 0

        /// Reads `resolution=minute&since=12`; nil if it is anything else.
        init?(_ text: String) {
            for parameter in text.split(separator: "&") {
                let parts = parameter.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                guard parts.count == 2 else { return nil }
                switch parts[0] {
                case "resolution":
                    guard let resolution = History.Resolution(rawValue: String(parts[1])) else { return nil }
                    self.resolution = resolution
                case "since":
                    guard let since = UInt32(parts[1]) else { return nil }
                    self.since = since
                default: return nil
                }
            }
        }
    }

    init(_ history: History) {
        self.history = history
    }

    /// Answers a request.
    ///
    /// - Parameter query: What follows the question mark of the request's target.
    func answer(_ query: String) -> AdministrationAnswer {
        guard let query = Query(query) else {
            return .error(
                .badRequest,
                "allowed are resolution=second or resolution=minute, and since with the position of the first row, such as "
                    + "/history?resolution=minute&since=0"
            )
        }
        return AdministrationAnswer(
            mediaType: "application/json",
            text: text(query, uptime: SystemUptime.now, time: Date().timeIntervalSince1970)
        )
    }

    /// - Parameters:
    ///   - uptime: The machine's, now: the position that `time` belongs to.
    ///   - time: The machine's clock now, in seconds since 1970.
    func text(_ query: Query, uptime: Double, time: Double) -> String {
        let excerpt = history.excerpt(query.resolution, from: query.since)
        let rows = excerpt.rows
        var text = #"{"now":{"position":\#(Self.rounded(uptime)),"time":\#(Self.rounded(time))}"#
        text += #","step":\#(query.resolution.step),"rows":\#(query.resolution.capacity),"more":\#(rows.isCut)"#
        text += #","positions":["# + rows.positions.map { "\($0)" }.joined(separator: ",") + #"],"figures":{"#
        for (column, figure) in history.figures.enumerated() {
            text += column == 0 ? "\"" : ",\""
            text += figure.rawValue + "\":["
            for index in rows.positions.indices {
                if index > 0 { text += "," }
                Self.append(rows.values[index * history.figures.count + column], to: &text)
            }
            text += "]"
        }
        let events = excerpt.events.map { placed in
            Event(
                number: placed.number, position: placed.position, kind: placed.event.kind.rawValue,
                text: placed.event.text, failed: placed.event.isFailure)
        }
        let encoded = (try? OperationsJSON.encode(events)).map { String(decoding: $0, as: UTF8.self) } ?? "[]"
        return text + #"},"events":\#(encoded)}"# + "\n"
    }

    private struct Event: Encodable {
        let number: UInt64
        let position: UInt32
        let kind: String
        let text: String
        let failed: Bool
    }

    private static func rounded(_ seconds: Double) -> Double { (seconds * 1_000).rounded() / 1_000 }

    /// Writes a figure with four digits, or all digits of a whole number.
    private static func append(_ value: Float, to text: inout String) {
        guard value.isFinite else {
            text += "null"
            return
        }
        if value.rounded() == value, let number = Int64(exactly: value) {
            text += "\(number)"
            return
        }
        let exact = Double(value)
        var scale = 1.0
        while abs(exact) * scale < 1_000 { scale *= 10 }
        text += "\((exact * scale).rounded() / scale)"
    }
}
