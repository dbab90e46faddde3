/// The elements of a `Forwarded` value (RFC 7239, section 4), one for each proxy that wrote to it.
package struct ForwardedElements {
    package struct Element {
        /// Nil if the element has no `for`, or one that is not an address, such as `unknown` or `_hidden`.
        package fileprivate(set) var address: IPAddress?
        /// Nil if the element has no `proto`.
        package fileprivate(set) var proto: [UInt8]?
    }

    /// The most elements of a list that are read, from its end: no request comes through more proxies, and whoever sends more
    /// has written the first ones himself.
    package static let limit = 64

    /// The last elements, in order.
    package private(set) var elements: [Element] = []
    /// False if a quote is not closed: what a proxy appended may then lie inside the quote.
    package let isWellFormed: Bool

    package init(_ value: ByteRange, in bytes: Span<UInt8>) {
        let parts = Self.split(value, at: UInt8(ascii: ","), in: bytes)
        isWellFormed = parts != nil
        for part in (parts ?? []).suffix(Self.limit) {
            var element = Element()
            var (client, proto): (ByteRange?, ByteRange?)
            for pair in Self.split(part, at: UInt8(ascii: ";"), in: bytes) ?? [] {
                guard let equals = bytes.firstIndex(of: UInt8(ascii: "="), in: pair.indices) else { continue }
                let name = bytes.trimmed(ByteRange(Int(pair.start), equals))
                let value = bytes.trimmed(ByteRange(equals + 1, Int(pair.end)))
                if bytes.equalsIgnoringCase(name, Names.proto) { proto = value }
                if bytes.equalsIgnoringCase(name, Names.client) { client = value }
            }
            // Of repeated parameters only the last is read.
            if let proto { element.proto = Self.unquoted(proto, in: bytes) }
            if let client {
                element.address = Self.address(String(decoding: Self.unquoted(client, in: bytes), as: UTF8.self))
            }
            elements.append(element)
        }
    }

    /// Reads `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80` or `2001:db8::1`.
    package static func address(_ text: String) -> IPAddress? {
        if text.hasPrefix("["), let close = text.firstIndex(of: "]") {
            return IPAddress(String(text[text.index(after: text.startIndex)..<close]))
        }
        if let address = IPAddress(text) { return address }
        guard let colon = text.lastIndex(of: ":") else { return nil }
        return IPAddress(String(text[..<colon]))
    }

    /// Splits outside quotes, in which a backslash escapes the next byte (RFC 9110, section 5.6.4), and leaves out empty parts;
    /// nil if a quote is not closed.
    private static func split(_ range: ByteRange, at separator: UInt8, in bytes: Span<UInt8>) -> [ByteRange]? {
        var parts: [ByteRange] = []
        var start = Int(range.start)
        var isQuoted = false
        var index = start
        while index < Int(range.end) {
            let byte = bytes[index]
            if byte == UInt8(ascii: "\"") {
                isQuoted.toggle()
            } else if isQuoted {
                if byte == UInt8(ascii: "\\") { index += 1 }
            } else if byte == separator {
                parts.append(bytes.trimmed(ByteRange(start, index)))
                start = index + 1
            }
            index += 1
        }
        guard !isQuoted else { return nil }
        parts.append(bytes.trimmed(ByteRange(start, Int(range.end))))
        return parts.filter { !$0.isEmpty }
    }

    /// A parameter's value without its quotes and their escapes.
    private static func unquoted(_ range: ByteRange, in bytes: Span<UInt8>) -> [UInt8] {
        guard range.count >= 2, bytes[Int(range.start)] == UInt8(ascii: "\""),
            bytes[Int(range.end) - 1] == UInt8(ascii: "\"")
        else { return [UInt8](range, in: bytes) }
        var text: [UInt8] = []
        var index = Int(range.start) + 1
        while index < Int(range.end) - 1 {
            if bytes[index] == UInt8(ascii: "\\") { index += 1 }
            text.append(bytes[index])
            index += 1
        }
        return text
    }

    private enum Names {
        static let proto: StaticString = "proto"
        static let client: StaticString = "for"
    }
}

extension Span<UInt8> {
    /// The last elements of a list in several lines, the last one first, at most `ForwardedElements.limit`.
    ///
    /// - Parameter values: The lines, in order.
    package func lastElements(of values: [ByteRange]) -> [ByteRange] {
        var last: [ByteRange] = []
        for value in values.reversed() where last.count < ForwardedElements.limit {
            last += elements(of: value).reversed()
        }
        return Array(last.prefix(ForwardedElements.limit))
    }
}
