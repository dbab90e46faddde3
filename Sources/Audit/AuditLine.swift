import Cryptography
import JSON
import System

/// Writes lines, and chains them: each has a MAC over itself and the MAC of the line before.
///
/// A line is a JSON object. The first five fields are always there and in this order, `mac` is always the last one, and
/// its MAC covers the bytes before `,"mac"`:
///
///     {"sequence":7,"period":0,"time":"2026-11-21T02:03:04.567890Z","action":"store_token","outcome":"ok",
///     "actor":"user","user_hash":"...","session_hash":"...","address":"192.0.2.1","request_id":"...","mac":"..."}
struct LineEncoder: ~Copyable {
    /// The chain's end so far.
    private(set) var end: ChainEnd
    private var hash: KeyedHash
    /// What is hashed: the MAC of the line before, and then the line.
    private var message: [UInt8] = []

    /// - Parameters:
    ///   - end: What the next line follows.
    ///   - key: The key of that line's period.
    init(after end: ChainEnd, _ key: ChainKey) {
        self.end = end
        hash = key.lineHash()
        message.reserveCapacity(1024)
    }

    /// Makes the MACs of the next lines with another period's key.
    mutating func use(_ hash: KeyedHash) {
        self.hash = hash
    }

    /// Goes back to an earlier end, because the lines since then were not written.
    mutating func revert(to end: ChainEnd) {
        self.end = end
    }

    /// Appends the line of an event.
    ///
    /// - Parameters:
    ///   - event: What happened.
    ///   - microseconds: The current time, since 1970.
    ///   - lines: The array to which the line and a newline are appended.
    mutating func append(_ event: AuditEvent, at microseconds: Int64, to lines: inout [UInt8]) {
        begin(microseconds, event.action.rawValue)
        switch event.outcome {
        case .ok: append("outcome", "ok")
        case .notFound: append("outcome", "not_found")
        case .preconditionFailed: append("outcome", "precondition_failed")
        case .denied(let reason):
            append("outcome", "denied")
            append("reason", reason)
        case .failed: append("outcome", "failed")
        }
        switch event.actor {
        case .user: append("actor", "user")
        case .apiKey(let name):
            append("actor", "api_key")
            append("api_key", name)
        case .operator(let uid):
            append("actor", "operator")
            append("uid", uid.map { "\($0)" })
        case .facebook: append("actor", "facebook")
        case .signal(let name):
            append("actor", "signal")
            append("signal", name)
        case .server: append("actor", "server")
        case .none: append("actor", "none")
        }
        append("user_hash", event.user?.text)
        append("session_hash", event.session?.text)
        append("key", event.key)
        append("address", event.address)
        append("request_id", event.requestID)
        append("count", event.count)
        finish(to: &lines)
    }

    /// Appends the line of an event of the log itself.
    ///
    /// - Parameter chain: The chain's name.
    mutating func append(_ event: LogEvent, chain: String, at microseconds: Int64, to lines: inout [UInt8]) {
        begin(microseconds, event.action.rawValue)
        append("outcome", event.finding == .linesMissing ? "failed" : "ok")
        append("reason", event.finding?.rawValue)
        append("actor", "server")
        append("removed_bytes", event.removedBytes.map(UInt64.init))
        append("lost_events", event.lostEvents)
        if event.isAnchor {
            append("chain", chain)
            append("previous", Base64URL.encode(end.mac.span))
        }
        finish(to: &lines)
        if event.action.endsPeriod { end.period += 1 }
    }

    // MARK: - Parts

    private mutating func begin(_ microseconds: Int64, _ action: String) {
        message.removeAll(keepingCapacity: true)
        message += end.mac
        message += #"{"sequence":\#(end.sequence + 1)"#.utf8
        append("period", end.period)
        append("time", Self.time(microseconds))
        append("action", action)
    }

    private mutating func finish(to lines: inout [UInt8]) {
        let mac = hash.mac(of: message.span)
        (end.sequence, end.mac) = (end.sequence + 1, mac)
        lines += message.dropFirst(ChainEnd.macLength)
        lines += #","mac":""#.utf8
        Base64URL.append(mac.span, to: &lines)
        lines += "\"}\n".utf8
    }

    private mutating func append(_ name: String, _ number: UInt64?) {
        if let number { message += #","\#(name)":\#(number)"#.utf8 }
    }

    /// Appends a text, which a client may have chosen, as a JSON string (RFC 8259, section 7).
    ///
    /// A long text is cut off, so that no client can make lines of any length.
    private mutating func append(_ name: String, _ text: String?) {
        guard let text else { return }
        message += #","\#(name)":""#.utf8
        for byte in text.utf8.prefix(Self.textLimit) {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): message += [UInt8(ascii: "\\"), byte]
            case 0x20..<0x7f: message.append(byte)
            // No field needs other characters, and some of them, such as U+2028, end a line for some programs.
            default: message.append(UInt8(ascii: "?"))
            }
        }
        message.append(UInt8(ascii: "\""))
    }

    private static let textLimit = 128

    /// A time as RFC 3339 defines it, in UTC and with microseconds.
    static func time(_ microseconds: Int64) -> String {
        let (second, fraction) = max(0, microseconds).quotientAndRemainder(dividingBy: 1_000_000)
        return UTCTime.timestamp(second, fraction: ".\(String(1_000_000 + fraction).dropFirst())")
    }
}

/// The fields of a line that the server and the verifier need; they can be trusted once the MAC was verified.
struct AuditLine {
    let period: UInt64
    /// As written in the line.
    let time: String
    /// The value of `reason`; nil if the line has none.
    let reason: String?
    /// The chain's name; nil unless the line is an anchor.
    let chain: String?
    /// The MAC of the line before; nil unless the line is an anchor.
    let previous: [UInt8]?
    /// The chain's end behind the line: its number, its MAC, and the period of the line that follows.
    let end: ChainEnd
    /// What the MAC covers behind the MAC of the line before.
    private let covered: ArraySlice<UInt8>

    /// Bytes that a line may have; no line of the encoder is that long.
    static let lengthLimit = 4096

    private static let macText = Array(#","mac":""#.utf8)
    /// Bytes of the field `mac` and the closing brace.
    private static let macFieldLength = macText.count + Base64URL.length(of: ChainEnd.macLength) + 2

    /// Reads a line without its newline; nil if the encoder would not write such a line.
    init?(_ bytes: ArraySlice<UInt8>) {
        guard bytes.count <= Self.lengthLimit, bytes.suffix(Self.macFieldLength).starts(with: Self.macText),
            let members = JSONObject(bytes.span, memberLimit: 32),
            let sequence = members.number("sequence").flatMap(UInt64.init),
            let period = members.number("period").flatMap(UInt64.init), period < .max, let time = members.text("time"),
            let action = members.text("action"), let mac = Self.mac(members.text("mac")),
            case let end = ChainEnd(
                sequence: sequence, mac: mac,
                period: LogEvent.Action(rawValue: action)?.endsPeriod == true ? period + 1 : period),
            end.isPossible
        else { return nil }
        (self.period, self.time, self.end) = (period, time, end)
        (reason, chain) = (members.text("reason"), members.text("chain"))
        previous = Self.mac(members.text("previous"))
        covered = bytes.dropLast(Self.macFieldLength)
    }

    /// Whether the line was written with a period's key behind the line with the given MAC.
    func isAuthentic(after previous: [UInt8], _ hash: KeyedHash) -> Bool {
        let message = previous + covered
        let expected = hash.mac(of: message.span)
        return ConstantTime.areEqual(expected.span, end.mac.span)
    }

    private static func mac(_ text: String?) -> [UInt8]? {
        guard let text, let mac = Base64URL.decode(Array(text.utf8).span), mac.count == ChainEnd.macLength else {
            return nil
        }
        return mac
    }
}
