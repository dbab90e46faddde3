/// Identifies a request, so that its lines in the logs can be matched with each other and with a client's report.
package enum RequestID: Sendable {
    case none
    /// Made here; shown as sixteen hexadecimal digits.
    case made(UInt64)
    /// Given by a trusted proxy; see `init(taking:in:)`.
    case given([UInt8])

    /// The longest id that is accepted from others, in bytes.
    private static let limit = 64

    /// An id from a proxy, which goes into logs and answers: letters, digits and the signs `-`, `_`, `.` and `@`; nil if it has
    /// any other byte.
    package init?(taking value: ByteRange, in bytes: Span<UInt8>) {
        guard !value.isEmpty, value.count <= Self.limit else { return nil }
        let name = [UInt8](value, in: bytes)
        guard name.allSatisfy(Self.isAllowed) else { return nil }
        self = .given(name)
    }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."),
            // In the ids of Apache's mod_unique_id.
            UInt8(ascii: "@"):
            true
        default: false
        }
    }

    /// The id's text; nil if requests have no ids.
    package var text: String? {
        switch self {
        case .none: return nil
        case .given(let name): return String(decoding: name, as: UTF8.self)
        case .made(let number):
            var digits = [UInt8](repeating: 0, count: Self.digitCount)
            Self.write(number, to: &digits, at: 0)
            return String(decoding: digits, as: UTF8.self)
        }
    }

    // MARK: - Digits

    static let digitCount = 16

    /// Writes sixteen hexadecimal digits over as many bytes.
    static func write(_ number: UInt64, to text: inout [UInt8], at offset: Int) {
        precondition(offset >= 0 && offset + digitCount <= text.count, "there is room for them")
        let (first, second) = (
            digits(UInt32(truncatingIfNeeded: number >> 32)), digits(UInt32(truncatingIfNeeded: number))
        )
        unsafe text.withUnsafeMutableBytes { bytes in
            unsafe bytes.storeBytes(of: first.bigEndian, toByteOffset: offset, as: UInt64.self)
            unsafe bytes.storeBytes(of: second.bigEndian, toByteOffset: offset + 8, as: UInt64.self)
        }
    }

    /// Eight digits at once, in the order of their bits: each half byte of the number becomes a byte, and then its digit.
    private static func digits(_ number: UInt32) -> UInt64 {
        var halves = UInt64(number)
        halves = (halves | halves << 16) & 0x0000_FFFF_0000_FFFF
        halves = (halves | halves << 8) & 0x00FF_00FF_00FF_00FF
        halves = (halves | halves << 4) & 0x0F0F_0F0F_0F0F_0F0F
        // 1 in each byte that is above 9.
        let letters = ((halves &+ 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101
        let digitsToLetters = UInt64(UInt8(ascii: "a") - 10 - UInt8(ascii: "0"))
        return halves &+ 0x3030_3030_3030_3030 &+ letters &* digitsToLetters
    }
}

/// Generates request ids for one loop.
///
/// Ids are distinct, but not secret: a counter with a random start, mixed by a bijection so that neighbours in a log do not look
/// alike (SplitMix64, in Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
package struct RequestIDs {
    private var state = UInt64.random(in: .min ... .max)

    package init() {}

    /// An id that no other request has.
    package mutating func next() -> RequestID {
        state &+= 0x9E37_79B9_7F4A_7C15
        var number = state
        number = (number ^ (number >> 30)) &* 0xBF58_476D_1CE4_E5B9
        number = (number ^ (number >> 27)) &* 0x94D0_49BB_1331_11EB
        return .made(number ^ (number >> 31))
    }
}
