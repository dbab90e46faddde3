internal import Cryptography

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
        case .adminKey(let name):
            appendField(#","actor":"admin_key","admin_key":""#)
            appendEscaped(name)
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
