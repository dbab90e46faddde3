internal import HTTP

/// The elements of a `Forwarded` value (RFC 7239), one for each proxy that wrote to it.
struct ForwardedElements {
    struct Element {
        /// Nil when the element has no `for`; `.some(nil)` when that is no address, such as `unknown` or `_hidden`.
        var address: IPAddress??
        var proto: ByteRange?
    }

    private(set) var elements: [Element] = []

    init(_ value: ByteRange, in bytes: Span<UInt8>) {
        for part in Self.split(value, at: UInt8(ascii: ","), in: bytes) {
            var element = Element()
            for pair in Self.split(part, at: UInt8(ascii: ";"), in: bytes) {
                guard let equals = bytes.firstIndex(of: UInt8(ascii: "="), in: pair.indices) else { continue }
                let name = bytes.trimmed(ByteRange(Int(pair.start), equals))
                let text = Self.unquoted(bytes.trimmed(ByteRange(equals + 1, Int(pair.end))), in: bytes)
                if bytes.equalsIgnoringCase(name, Names.proto) { element.proto = text }
                if bytes.equalsIgnoringCase(name, Names.client) {
                    element.address = .some(Self.address(text, in: bytes))
                }
            }
            elements.append(element)
        }
    }

    /// Reads `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80` or `2001:db8::1`.
    static func address(_ range: ByteRange, in bytes: Span<UInt8>) -> IPAddress? {
        let text = bytes.text(range)
        if text.hasPrefix("["), let close = text.firstIndex(of: "]") {
            return IPAddress(String(text[text.index(after: text.startIndex)..<close]))
        }
        if let address = IPAddress(text) { return address }
        guard let colon = text.lastIndex(of: ":") else { return nil }
        return IPAddress(String(text[..<colon]))
    }

    /// Splits outside quotes; empty parts are left out.
    private static func split(_ range: ByteRange, at separator: UInt8, in bytes: Span<UInt8>) -> [ByteRange] {
        var parts: [ByteRange] = []
        var start = Int(range.start)
        var isQuoted = false
        for index in range.indices {
            if bytes[index] == UInt8(ascii: "\"") { isQuoted.toggle() }
            guard bytes[index] == separator, !isQuoted else { continue }
            parts.append(bytes.trimmed(ByteRange(start, index)))
            start = index + 1
        }
        parts.append(bytes.trimmed(ByteRange(start, Int(range.end))))
        return parts.filter { !$0.isEmpty }
    }

    private static func unquoted(_ range: ByteRange, in bytes: Span<UInt8>) -> ByteRange {
        guard range.count >= 2, bytes[Int(range.start)] == UInt8(ascii: "\""),
            bytes[Int(range.end) - 1] == UInt8(ascii: "\"")
        else { return range }
        return ByteRange(Int(range.start) + 1, Int(range.end) - 1)
    }

    private enum Names {
        static let proto: StaticString = "proto"
        static let client: StaticString = "for"
    }
}
