/// A set of bytes of the HTTP grammar, with a bit for each byte of ASCII: a test costs a shift and no memory access.
package struct ByteClass: Sendable {
    /// Bit n stands for byte n, and for byte 64 + n.
    private let (low, high): (UInt64, UInt64)
    /// Whether it contains the bytes from 0x80.
    private let hasHighBytes: Bool
    /// Most of its bytes, if there is a quick test for them; bytes that fail it are tested one by one.
    let plain: PlainBytes?

    private init(low: UInt64, high: UInt64, hasHighBytes: Bool, plain: PlainBytes? = nil) {
        (self.low, self.high) = (low, high)
        self.hasHighBytes = hasHighBytes
        self.plain = plain
    }

    @inline(__always)
    func contains(_ byte: UInt8) -> Bool {
        if byte >= 0x80 { return hasHighBytes }
        return (byte < 64 ? low : high) >> UInt64(byte & 63) & 1 == 1
    }

    /// `token` of RFC 9110, section 5.6.2, for methods and field names: letters, digits and !#$%&'*+-.^_`|~.
    static let token = ByteClass(low: 0x03ff_6cfa_0000_0000, high: 0x57ff_ffff_c7ff_fffe, hasHighBytes: false)

    /// What a field value may hold (RFC 9110, section 5.5): visible characters, blanks, tabs and bytes from 0x80.
    static let fieldValue = ByteClass(
        low: 0xffff_ffff_0000_0200, high: 0x7fff_ffff_ffff_ffff, hasHighBytes: true,
        plain: PlainBytes(from: 0x20, but: 0x7f))

    /// What a request target may hold: visible ASCII but `#`.
    ///
    /// The grammar (RFC 3986) is narrower; the sample client sends braces and quotes unencoded, which are not ambiguous.
    static let target = ByteClass(
        low: 0xffff_fff6_0000_0000, high: 0x7fff_ffff_ffff_ffff, hasHighBytes: false,
        plain: PlainBytes(from: 0x21, but: UInt8(ascii: "#")))

    /// `reg-name` of RFC 3986, section 3.2.2, without its escapes: letters, digits and -._~!$&'()*+,;=.
    static let host = ByteClass(low: 0x2bff_7fd2_0000_0000, high: 0x47ff_fffe_87ff_fffe, hasHighBytes: false)

    /// Bytes of a form's value that are neither escapes nor part of a tag: ASCII from `,` on except `<` and DEL.
    ///
    /// That leaves out `%`, `+` and NUL; `>` ends no tag if none has begun. Bytes below `,` are left out although some would
    /// fit, for the quick test takes one run of bytes with one exception.
    package static let literal = ByteClass(
        low: 0xefff_f000_0000_0000, high: 0x7fff_ffff_ffff_ffff, hasHighBytes: false,
        plain: PlainBytes(from: UInt8(ascii: ","), but: UInt8(ascii: "<")))

    static func isDigit(_ byte: UInt8) -> Bool {
        byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9")
    }

    /// A capital letter of ASCII as a small one, and any other byte as it is.
    @inline(__always)
    package static func lowerCase(_ byte: UInt8) -> UInt8 {
        byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte
    }

    /// The value of a hexadecimal digit in either case.
    @inline(__always)
    package static func hexValue(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

/// The bytes from a first one to 0x7e except one of them, tested eight at a time.
struct PlainBytes: Sendable {
    /// Added to a byte below 0x80 they set its highest bit if it is not below the first one.
    private let reach: UInt64
    private let exception: UInt64

    /// - Parameters:
    ///   - first: From 1 to 0x7e.
    ///   - exception: Below 0x80.
    init(from first: UInt8, but exception: UInt8) {
        reach = Self.each(0x80 - first)
        self.exception = Self.each(exception)
    }

    private static func each(_ byte: UInt8) -> UInt64 { 0x0101_0101_0101_0101 * UInt64(byte) }

    /// Whether all eight bytes of a word are among them.
    @inline(__always)
    func areAll(_ word: UInt64) -> Bool {
        let (highest, others) = (Self.each(0x80), Self.each(0x7f))
        guard word & highest == 0 else { return false }
        // No sum of two bytes carries over to the next one. Of a difference that is not 0 the sum has its highest bit set.
        let isNotBelow = word + reach
        let isNotDelete = (word ^ others) + others
        let isNoException = (word ^ exception) + others
        return isNotBelow & isNotDelete & isNoException & highest == highest
    }
}

extension UInt8 {
    static let carriageReturn = UInt8(ascii: "\r")
    static let lineFeed = UInt8(ascii: "\n")
    static let space = UInt8(ascii: " ")
    static let tab = UInt8(ascii: "\t")
}

extension Span<UInt8> {
    /// Whether a range of indices starts with `text` in any case; `text` is as in `equalsIgnoringCase`.
    package func hasPrefix(_ text: StaticString, in range: Range<Int>) -> Bool {
        let count = text.utf8CodeUnitCount
        guard range.count >= count else { return false }
        return equalsIgnoringCase(ByteRange(range.lowerBound, range.lowerBound + count), text)
    }

    /// Calls `body` with the elements of a comma-separated list (RFC 9110, section 5.6.1), without white space around them.
    ///
    /// - Parameter least: Leaves out elements that are shorter, such as empty ones.
    @inline(__always)
    func forEachElement(of value: ByteRange, least: Int, _ body: (ByteRange) -> Void) {
        let (text, offset) = (extracting(value.indices), Int(value.start))
        var (start, index) = (0, 0)
        while index <= text.count {
            if index == text.count || text[index] == UInt8(ascii: ",") {
                // Most lists that are made to be costly have short elements.
                if index - start >= least {
                    let element = trimmed(ByteRange(offset + start, offset + index))
                    if element.count >= least { body(element) }
                }
                start = index + 1
            }
            index += 1
        }
    }

    /// The last elements of a list in several lines, the last one first, without empty ones.
    ///
    /// Of at most 16 elements, empty ones included, and 1 KiB: no request comes through more proxies, and whoever sends more has
    /// written the first ones themselves.
    ///
    /// - Parameter values: The lines, in order.
    package func lastElements(of values: [ByteRange]) -> [ByteRange] {
        var last: [ByteRange] = []
        var (elementsLeft, bytesLeft) = (16, 1 << 10)
        for value in values.reversed() {
            var (start, end) = (Int(value.end), Int(value.end))
            while elementsLeft > 0, bytesLeft > 0 {
                let isWhole = start == Int(value.start)
                if isWhole || self[start - 1] == UInt8(ascii: ",") {
                    let element = trimmed(ByteRange(start, end))
                    if !element.isEmpty { last.append(element) }
                    elementsLeft -= 1
                    end = start - 1
                    if isWhole { break }
                }
                start -= 1
                bytesLeft -= 1
            }
        }
        return last
    }

    /// Whether the whole span is the name of a header field (RFC 9110, section 5.1).
    package var isFieldName: Bool { !isEmpty && indices.allSatisfy { ByteClass.token.contains(self[$0]) } }

    /// Whether a range is a host with an optional port: a name, whose percent signs begin escapes, an IPv4 address, or an IP
    /// literal in brackets (RFC 3986, section 3.2; no user information, which RFC 9110 section 4.2.4 forbids).
    ///
    /// A host has at most 255 characters (RFC 3986, section 3.2.2).
    package func isAuthority(_ range: ByteRange) -> Bool {
        guard range.count <= 255 + ":65535".utf8.count else { return false }
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

    /// Whether a valid or empty authority has a name that a stranger's DNS could point to this machine.
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
        // A complete name ends with the dot of the root.
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
