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

/// A figure whose course over time is kept; its raw value is its name in the answer of `/history`.
enum HistoryFigure: String, CaseIterable, Sendable {
    // Rates, in a second:
    case get, post, other
    /// Answers with a status from 400 on, or an error code other than 50002.
    case errors
    /// Answers with 50001 or a status from 500 on.
    case failures
    /// Requests that were not served for want of a valid credential.
    case denied
    /// Connections beyond the limit.
    case refused
    /// Requests that were sent to a database again.
    case retries

    // Times, in seconds:
    case getMedian = "get_p50"
    case getSlow = "get_p99"
    case postMedian = "post_p50"
    case postSlow = "post_p99"
    case commitMedian = "commit_p50"
    case commitSlow = "commit_p99"
    case syncSlow = "sync_p99"
    case readMedian = "read_p50"
    case readSlow = "read_p99"

    // Shares of 1:
    case hitRatio = "hit_ratio"
    /// The GETs that were answered with 50002: no token is stored under the id.
    case notFoundRatio = "not_found_ratio"
    /// Of one core.
    case processor

    // States:
    case connections
    /// Resident bytes of the process.
    case memory
    case cacheBytes = "cache_bytes"
    /// Bytes of `limits.buffers` in use.
    case bufferBytes = "buffer_bytes"
    case tokens
    case sessions
    /// Bytes of the database and its WAL.
    case storeBytes = "store_bytes"
    /// Bytes that may still be written to the data folder's file system.
    case diskFree = "disk_free"
    /// Requests that wait for a database.
    case waiting

    /// Whether the value of ten seconds is the largest of its seconds, because a short peak matters; otherwise it is that of
    /// the ten seconds as a whole, and of a state that at their end.
    var isPeak: Bool {
        switch self {
        case .errors, .failures, .denied, .refused, .retries, .connections, .memory, .cacheBytes, .bufferBytes,
            .waiting:
            true
        default: false
        }
    }

    /// Whether only a store in a database on other machines has the figure.
    private var isRemote: Bool {
        switch self {
        case .retries, .readMedian, .readSlow, .waiting: true
        default: false
        }
    }

    /// Whether only a store on this machine has the figure.
    private var isLocal: Bool {
        switch self {
        case .hitRatio, .cacheBytes, .commitMedian, .syncSlow, .tokens, .storeBytes: true
        default: false
        }
    }

    /// The figures of a server.
    ///
    /// - Parameter isRemote: Whether its store is in a database on other machines.
    static func all(isRemote: Bool) -> [HistoryFigure] {
        allCases.filter { isRemote ? !$0.isLocal : !$0.isRemote }
    }
}
