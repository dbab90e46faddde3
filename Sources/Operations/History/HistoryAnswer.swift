internal import FoundationEssentials
internal import HTTP
internal import System

/// The answer of `/history`: rows from a position on, column by column, so that an open page asks only for what is new.
struct HistoryAnswer {
    private let history: History

    init(_ history: History) {
        self.history = history
    }

    /// Answers a request.
    ///
    /// - Parameter query: What follows the question mark of the request's target.
    func answer(_ query: String) -> AdministrationAnswer {
        guard let first = Self.first(query) else {
            return .error(
                .badRequest, "allowed is since with the position of the first row, such as /history?since=0")
        }
        return AdministrationAnswer(
            mediaType: "application/json",
            text: text(from: first, uptime: SystemUptime.now, time: Date().timeIntervalSince1970)
        )
    }

    /// The position in `since=12`, and 0 in an empty query; nil if it is anything else.
    static func first(_ query: String) -> UInt32? {
        let name = "since="
        return query.isEmpty ? 0 : query.hasPrefix(name) ? UInt32(query.dropFirst(name.count)) : nil
    }

    /// - Parameters:
    ///   - first: The position of the first row.
    ///   - uptime: The machine's, now: the position that `time` belongs to.
    ///   - time: The machine's clock now, in seconds since 1970.
    func text(from first: UInt32, uptime: Double, time: Double) -> String {
        let excerpt = history.excerpt(from: first)
        let rows = excerpt.rows
        var text = #"{"now":{"position":\#(Self.rounded(uptime)),"time":\#(Self.rounded(time))}"#
        text += #","step":\#(History.step),"rows":\#(History.rowLimit)"#
        text += #","positions":["# + rows.map { "\($0.position)" }.joined(separator: ",") + #"],"figures":{"#
        for (column, figure) in history.figures.enumerated() {
            text += column == 0 ? "\"" : ",\""
            text += figure.rawValue + "\":["
            for (index, row) in rows.enumerated() {
                if index > 0 { text += "," }
                Self.append(row.values[column], to: &text)
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
