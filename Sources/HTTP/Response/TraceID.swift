/// The trace that a request belongs to, according to a proxy in front of the server (W3C Trace Context, section 3.2).
package struct TraceID: Hashable, Sendable {
    /// The first and the last eight bytes.
    private let first: UInt64
    private let last: UInt64

    /// Reads a `traceparent`; nil if it breaks any rule of the standard, as it must then be ignored.
    ///
    /// That is a version of two digits other than ff, a trace id of 32 digits, a parent id of 16, neither of them 0, and two
    /// digits of flags, with a hyphen between each two, and nothing behind them in version 00. Later versions may have more
    /// behind a further hyphen. Digits are hexadecimal and in lower case.
    package init?(parent value: ByteRange, in bytes: Span<UInt8>) {
        guard value.count >= Self.length, value.count <= Self.limit else { return nil }
        let text = bytes.extracting(value.indices)
        guard text[2] == Self.hyphen, text[35] == Self.hyphen, text[52] == Self.hyphen,
            let version = Self.number(text, 0..<2), version != 0xFF,
            let first = Self.number(text, 3..<19), let last = Self.number(text, 19..<35), first | last != 0,
            let parent = Self.number(text, 36..<52), parent != 0, Self.number(text, 53..<55) != nil
        else { return nil }
        guard text.count == Self.length || (version > 0 && text[Self.length] == Self.hyphen) else { return nil }
        self.first = first
        self.last = last
    }

    private static let length = 55
    /// The longest value that is read; those of later versions of the standard may be longer than today's.
    private static let limit = 256
    private static let hyphen = UInt8(ascii: "-")

    private static func number(_ text: Span<UInt8>, _ range: Range<Int>) -> UInt64? {
        var number: UInt64 = 0
        for index in range {
            switch text[index] {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): number = number << 4 | UInt64(text[index] - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"):
                number = number << 4 | UInt64(text[index] - UInt8(ascii: "a") + 10)
            default: return nil
            }
        }
        return number
    }

    /// Its 32 digits.
    package var text: String {
        var digits = [UInt8](repeating: 0, count: 2 * RequestID.digitCount)
        RequestID.write(first, to: &digits, at: 0)
        RequestID.write(last, to: &digits, at: RequestID.digitCount)
        return String(decoding: digits, as: UTF8.self)
    }
}
