internal import Cryptography
internal import System

/// Writes lines, and chains them: each has a MAC over itself and the MAC of the line before.
///
/// A line is a JSON object. The first five fields are always there and in this order, `mac` is always the last one, and
/// its MAC covers the bytes before `,"mac"`:
///
///     {"sequence":7,"period":0,"time":"2026-11-21T02:03:04.567890Z","action":"store_token","outcome":"ok",
///     "actor":"user","user_hash":"...","session_hash":"...","address":"192.0.2.1","request_id":"...","mac":"..."}
struct LineEncoder: ~Copyable {
    private(set) var head: ChainHead
    private(set) var period: UInt64
    private var hash: KeyedHash
    private var time = LineTime()
    /// The MAC of the line before and then the line, as they are hashed.
    private var message: [UInt8] = []

    init(after head: ChainHead, _ key: ChainKey) throws(CryptographyError) {
        self.head = head
        hash = try KeyedHash(key.macKey())
        period = key.period
        message.reserveCapacity(1024)
    }

    /// Goes on in another period.
    ///
    /// - Parameters:
    ///   - period: Its number.
    ///   - hash: With its key for lines.
    mutating func enter(_ period: UInt64, _ hash: KeyedHash) {
        self.hash = hash
        self.period = period
    }

    /// Goes back to an earlier end: the lines since then were not written.
    mutating func revert(to head: ChainHead) {
        self.head = head
    }

    /// Appends the line of an event.
    ///
    /// - Parameters:
    ///   - event: What happened.
    ///   - microseconds: The present time, since 1970.
    ///   - lines: The line and a newline are appended to them.
    mutating func append(_ event: AuditEvent, at microseconds: Int64, to lines: inout [UInt8]) throws(CryptographyError)
    {
        begin(microseconds, event.action.rawValue)
        appendOutcome(event.outcome)
        switch event.actor {
        case .user: appendField(#","actor":"user"#)
        case .apiKey(let name):
            appendField(#","actor":"api_key","api_key":""#)
            appendEscaped(name)
        case .operator(nil): appendField(#","actor":"operator"#)
        case .operator(let uid?): appendField(#","actor":"operator","uid":"\#(uid)"#)
        case .signal(let name): appendField(#","actor":"signal","signal":"\#(name)"#)
        case .none: appendField(#","actor":"none"#)
        }
        if let user = event.user {
            appendField(#"","user_hash":""#)
            user.append(to: &message)
        }
        if let session = event.session {
            appendField(#"","session_hash":""#)
            session.append(to: &message)
        }
        if let key = event.key {
            appendField(#"","key":""#)
            appendEscaped(key)
        }
        if let address = event.address {
            appendField(#"","address":""#)
            appendEscaped(address)
        }
        if let requestID = event.requestID {
            appendField(#"","request_id":""#)
            appendEscaped(requestID)
        }
        message.append(UInt8(ascii: "\""))
        if let count = event.count { appendField(#","count":\#(count)"#) }
        try end(to: &lines)
    }

    /// Appends the line of an event of the log itself.
    ///
    /// - Parameter chain: The chain's name.
    mutating func append(
        _ event: LogEvent, chain: String, at microseconds: Int64, to lines: inout [UInt8]
    ) throws(CryptographyError) {
        begin(microseconds, event.action.rawValue)
        switch event {
        case .opened(let finding, let removedBytes):
            appendField(finding.isBreak ? "failed" : "ok")
            appendField(#"","reason":""#)
            appendField(finding.rawValue)
            appendField(#"","actor":"server""#)
            if removedBytes > 0 { appendField(#","removed_bytes":\#(removedBytes)"#) }
        case .resumed(let lostEvents):
            appendField(#"ok","actor":"server","lost_events":\#(lostEvents)"#)
        case .continued, .keyChanged, .closed: appendField(#"ok","actor":"server""#)
        }
        if event.isAnchor {
            appendField(#","chain":"\#(chain)","previous":""#)
            let mac = head.mac
            Base64URL.append(mac.span, to: &message)
            message.append(UInt8(ascii: "\""))
        }
        try end(to: &lines)
    }

    // MARK: - Parts

    /// Up to the opening quotation mark of the outcome.
    private mutating func begin(_ microseconds: Int64, _ action: String) {
        message.removeAll(keepingCapacity: true)
        message.append(contentsOf: head.mac)
        appendField(#"{"sequence":"#)
        appendNumber(head.sequence + 1)
        appendField(#","period":"#)
        appendNumber(period)
        appendField(#","time":""#)
        time.append(microseconds, to: &message)
        appendField(#"","action":""#)
        appendField(action)
        appendField(#"","outcome":""#)
    }

    /// The outcome with its closing quotation mark.
    private mutating func appendOutcome(_ outcome: AuditEvent.Outcome) {
        switch outcome {
        case .ok: appendField(#"ok""#)
        case .notFound: appendField(#"not_found""#)
        case .preconditionFailed: appendField(#"precondition_failed""#)
        case .denied(let reason):
            appendField(#"denied","reason":""#)
            appendEscaped(reason)
            message.append(UInt8(ascii: "\""))
        case .failed: appendField(#"failed""#)
        }
    }

    private mutating func end(to lines: inout [UInt8]) throws(CryptographyError) {
        let covered = message
        try hash.hash(covered.span, into: &head.mac)
        head.sequence += 1
        lines.append(span: message.span.extracting(ChainHead.macLength...))
        lines.append(contentsOf: #","mac":""#.utf8)
        Base64URL.append(head.mac.span, to: &lines)
        lines.append(contentsOf: "\"}\n".utf8)
    }

    private mutating func appendField(_ text: String) {
        message.append(contentsOf: text.utf8)
    }

    private mutating func appendNumber(_ number: UInt64) {
        var divisor: UInt64 = 1
        while number / divisor >= 10 { divisor *= 10 }
        while divisor > 0 {
            message.append(UInt8(ascii: "0") + UInt8(number / divisor % 10))
            divisor /= 10
        }
    }

    /// Appends text that others chose as a part of a JSON string (RFC 8259, section 7).
    ///
    /// Only the first bytes of a long one: no client makes lines of any length.
    private mutating func appendEscaped(_ text: String) {
        for byte in Array(text.utf8).prefix(Self.textLimit) {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                message.append(UInt8(ascii: "\\"))
                message.append(byte)
            case 0x20..<0x7f: message.append(byte)
            // No line needs them, and not every reader of lines takes all of UTF-8's characters for one line.
            default: appendField("?")
            }
        }
    }

    private static let textLimit = 128
}

/// What the server and the verifier need of a line.
///
/// Only lines as `LineEncoder` writes them are read. That is enough, as the MAC covers every byte of them.
struct AuditLine {
    let sequence: UInt64
    let period: UInt64
    /// As it stands there.
    let time: String
    let action: String
    /// The word of `reason`; nil without one.
    let reason: String?
    /// The chain's name; nil unless the line is an anchor.
    let chain: String?
    /// The MAC of the line before; nil unless the line is an anchor.
    let previous: [UInt8]?
    let mac: [UInt8]
    /// How many of the line's bytes the MAC covers.
    let coveredCount: Int

    /// Longer than any line, in bytes.
    static let lengthLimit = 4096

    private static let macText = Array(#","mac":""#.utf8)
    private static let previousText = Array(#","previous":""#.utf8)
    private static let chainText = Array(#","chain":""#.utf8)
    private static let macCharacters = Base64URL.length(of: ChainHead.macLength)
    private static let chainCharacters = Base64URL.length(of: 16)

    /// Reads a line without its newline; nil if the encoder would not write such a line.
    init?(_ bytes: ArraySlice<UInt8>) {
        guard bytes.count <= Self.lengthLimit else { return nil }
        var head = bytes
        guard Self.take(#"{"sequence":"#, &head), let sequence = Self.takeNumber(&head),
            Self.take(#","period":"#, &head), let period = Self.takeNumber(&head),
            Self.take(#","time":""#, &head), let time = Self.takeWord(&head), time.utf8.count == LineTime.length,
            Self.take(#","action":""#, &head), let action = Self.takeWord(&head),
            Self.take(#","outcome":""#, &head), Self.takeWord(&head) != nil
        else { return nil }
        reason = Self.take(#","reason":""#, &head) ? Self.takeWord(&head) : nil
        var tail = bytes
        guard Self.drop(Array(#""}"#.utf8), &tail), let mac = Self.dropMAC(&tail), Self.drop(Self.macText, &tail) else {
            return nil
        }
        (self.sequence, self.period, self.time, self.action, self.mac) = (sequence, period, time, action, mac)
        coveredCount = tail.count
        // A quotation mark inside of a value has a backslash before it, so no value can look like these fields.
        if Self.drop(Array("\"".utf8), &tail), let previous = Self.dropMAC(&tail), Self.drop(Self.previousText, &tail),
            Self.drop(Array("\"".utf8), &tail), tail.count > Self.chainCharacters
        {
            let chain = String(decoding: tail.suffix(Self.chainCharacters), as: UTF8.self)
            tail.removeLast(Self.chainCharacters)
            guard Self.drop(Self.chainText, &tail) else { return nil }
            (self.previous, self.chain) = (previous, chain)
        } else {
            (previous, chain) = (nil, nil)
        }
    }

    private static func take(_ text: String, _ bytes: inout ArraySlice<UInt8>) -> Bool {
        guard bytes.starts(with: text.utf8) else { return false }
        bytes.removeFirst(text.utf8.count)
        return true
    }

    /// A number as the encoder writes it: without a sign or leading zeros.
    private static func takeNumber(_ bytes: inout ArraySlice<UInt8>) -> UInt64? {
        let digits = bytes.prefix { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
        bytes = bytes.dropFirst(digits.count)
        guard digits.count == 1 || digits.first != UInt8(ascii: "0") else { return nil }
        return UInt64(String(decoding: digits, as: UTF8.self))
    }

    /// The text up to a quotation mark, which is passed as well.
    private static func takeWord(_ bytes: inout ArraySlice<UInt8>) -> String? {
        guard let end = bytes.firstIndex(of: UInt8(ascii: "\"")) else { return nil }
        defer { bytes = bytes[(end + 1)...] }
        return String(decoding: bytes[..<end], as: UTF8.self)
    }

    private static func drop(_ text: [UInt8], _ bytes: inout ArraySlice<UInt8>) -> Bool {
        guard bytes.suffix(text.count).elementsEqual(text) else { return false }
        bytes.removeLast(text.count)
        return true
    }

    private static func dropMAC(_ bytes: inout ArraySlice<UInt8>) -> [UInt8]? {
        guard let mac = Base64URL.decode(Array(bytes.suffix(macCharacters)).span), mac.count == ChainHead.macLength
        else {
            return nil
        }
        bytes.removeLast(macCharacters)
        return mac
    }
}

/// Writes times as RFC 3339 defines them, in UTC and with microseconds: `2026-11-21T02:03:04.567890Z`.
struct LineTime: ~Copyable {
    static let length = 27

    /// The last second that was written, and its text up to the point.
    private var second: Int64 = .min
    private var text: [UInt8] = []

    /// - Parameters:
    ///   - microseconds: Since 1970.
    ///   - line: The time is appended to it.
    mutating func append(_ microseconds: Int64, to line: inout [UInt8]) {
        let (second, rest) = max(0, microseconds).quotientAndRemainder(dividingBy: 1_000_000)
        if second != self.second {
            self.second = second
            format(second)
        }
        line.append(span: text.span)
        var divisor: Int64 = 100_000
        while divisor > 0 {
            line.append(Self.digit(rest / divisor))
            divisor /= 10
        }
        line.append(UInt8(ascii: "Z"))
    }

    private mutating func format(_ second: Int64) {
        let (days, clock) = second.quotientAndRemainder(dividingBy: 86_400)
        let day = CalendarDay(daysSince1970: days)
        text.removeAll(keepingCapacity: true)
        append(day.year / 100)
        append(day.year % 100)
        for (mark, value) in [
            ("-", day.month), ("-", day.day), ("T", clock / 3_600), (":", clock / 60 % 60), (":", clock % 60),
        ] {
            text.append(contentsOf: mark.utf8)
            append(value)
        }
        text.append(UInt8(ascii: "."))
    }

    private mutating func append(_ twoDigits: Int64) {
        text.append(Self.digit(twoDigits / 10))
        text.append(Self.digit(twoDigits))
    }

    private static func digit(_ value: Int64) -> UInt8 { UInt8(ascii: "0") + UInt8(value % 10) }
}
