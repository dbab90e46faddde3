extension Span<UInt8> {
    /// Whether a range of indices starts with `text` in any case; `text` is as in `equalsIgnoringCase`.
    package func hasPrefix(_ text: StaticString, in range: Range<Int>) -> Bool {
        let count = text.utf8CodeUnitCount
        guard range.count >= count else { return false }
        return equalsIgnoringCase(ByteRange(range.lowerBound, range.lowerBound + count), text)
    }

    /// The elements of a comma-separated list without the white space around them, empty ones left out
    /// (RFC 9110, section 5.6.1).
    package func elements(of value: ByteRange) -> [ByteRange] {
        var elements: [ByteRange] = []
        var start = Int(value.start)
        while start <= Int(value.end) {
            let end = firstIndex(of: UInt8(ascii: ","), in: start..<Int(value.end)) ?? Int(value.end)
            let element = trimmed(ByteRange(start, end))
            if !element.isEmpty { elements.append(element) }
            start = end + 1
        }
        return elements
    }

    /// Whether all of it is the name of a header field (RFC 9110, section 5.1).
    package var isFieldName: Bool { !isEmpty && indices.allSatisfy { ByteClass.token.contains(self[$0]) } }

    /// Whether a range is a host with an optional port: a name, whose percent signs begin escapes, an IPv4 address, or an IP
    /// literal in brackets (RFC 3986, section 3.2; no user information, which RFC 9110 section 4.2.4 forbids).
    package func isAuthority(_ range: ByteRange) -> Bool {
        var index = Int(range.start)
        let end = Int(range.end)
        if index < end && self[index] == UInt8(ascii: "[") {
            guard let close = firstIndex(of: UInt8(ascii: "]"), in: index..<end), close > index + 2 else {
                return false
            }
            for inner in (index + 1)..<close where !Self.isAddressCharacter(self[inner]) { return false }
            index = close + 1
        } else {
            let start = index
            while index < end {
                if ByteClass.host.contains(self[index]) {
                    index += 1
                } else if self[index] == UInt8(ascii: "%"), index + 2 < end, ByteClass.hexValue(self[index + 1]) != nil,
                    ByteClass.hexValue(self[index + 2]) != nil
                {
                    index += 3
                } else {
                    break
                }
            }
            guard index > start else { return false }
        }
        guard index < end else { return true }
        guard self[index] == UInt8(ascii: ":"), end - index <= 6 else { return false }
        for digit in (index + 1)..<end where !ByteClass.isDigit(self[digit]) { return false }
        return true
    }

    /// Whether a valid or empty authority has a name that anybody's DNS could point to this machine.
    ///
    /// DNS does not decide where addresses, `localhost` and the names below it lead (RFC 6761, section 6.3). A name without a
    /// dot is taken for one of the local network.
    package func hasForeignName(_ authority: ByteRange) -> Bool {
        // A span of its own, so that no step checks its bounds.
        let text = extracting(authority.indices)
        guard !text.isEmpty, text[0] != UInt8(ascii: "[") else { return false }
        var (isNumeric, hasDot) = (true, false)
        var end = 0
        while end < text.count, text[end] != UInt8(ascii: ":") {
            // Escapes are not decoded, as no client writes them.
            if text[end] == UInt8(ascii: ".") || text[end] == UInt8(ascii: "%") {
                hasDot = true
            } else if !ByteClass.isDigit(text[end]) {
                isNumeric = false
            }
            end += 1
        }
        guard hasDot && !isNumeric else { return false }
        // The dot of the root, after which no name follows.
        if text[end - 1] == UInt8(ascii: ".") { end -= 1 }
        guard
            text.firstIndex(of: UInt8(ascii: "."), in: 0..<end) != nil
                || text.firstIndex(of: UInt8(ascii: "%"), in: 0..<end) != nil
        else { return false }
        let suffix: StaticString = ".localhost"
        let start = end - suffix.utf8CodeUnitCount
        return start < 0 || !text.equalsIgnoringCase(ByteRange(start, end), suffix)
    }

    /// The port of a valid authority; nil if it has none.
    package func port(of authority: ByteRange) -> Int? {
        var (port, factor) = (0, 1)
        for index in authority.indices.reversed() {
            if self[index] == UInt8(ascii: ":") { return factor > 1 ? port : nil }
            // A name without a port may be all digits, and longer than any number.
            guard ByteClass.isDigit(self[index]), factor <= 10_000 else { return nil }
            port += Int(self[index] - UInt8(ascii: "0")) * factor
            factor *= 10
        }
        return nil
    }

    /// Hexadecimal digits, colons, and the dots of an IPv4 address at the end.
    private static func isAddressCharacter(_ byte: UInt8) -> Bool {
        ByteClass.hexValue(byte) != nil || byte == UInt8(ascii: ":") || byte == UInt8(ascii: ".")
    }
}
