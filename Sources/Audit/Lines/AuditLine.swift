internal import Cryptography

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
