internal import HTTP

/// Names requests, so that a line of a log finds its request in the proxy's log and at the client.
///
/// One a loop. The names are distinct, not secret: a random start and a count.
struct RequestIDs {
    private var last = UInt64.random(in: .min ... .max)

    /// Sixteen hexadecimal digits that no other request has.
    mutating func next() -> [UInt8] {
        last &+= 1
        let digits = String(last, radix: 16)
        return Array((String(repeating: "0", count: 16 - digits.count) + digits).utf8)
    }

    /// Longest name that is taken from others, in bytes.
    private static let limit = 64

    /// A name that somebody else has given, as it goes into logs and answers: letters, digits, hyphens, underscores and
    /// dots; nil when it is anything else.
    static func given(_ value: ByteRange, in bytes: Span<UInt8>) -> [UInt8]? {
        guard !value.isEmpty, value.count <= limit else { return nil }
        let name = [UInt8](value, in: bytes)
        return name.allSatisfy(isAllowed) ? name : nil
    }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
            true
        default: false
        }
    }
}
