/// A time in a token: seconds since 1970, with or without decimals (RFC 7519, section 2).
struct NumericDate {
    /// The last whole second that is not after the time.
    let floor: Int64
    /// The first whole second that is not before the time.
    let ceiling: Int64

    /// Digits before the point: enough for 31,000 years, and too few for milliseconds.
    private static let digitLimit = 12

    /// Nil for a number with an exponent, or one that is too long.
    ///
    /// - Parameter number: A JSON number's text. JSON's grammar allows an exponent and any number of digits, which issuers do
    ///   not write for times.
    init?(_ number: [UInt8]) {
        let isNegative = number.first == UInt8(ascii: "-")
        let parts = number.dropFirst(isNegative ? 1 : 0).split(
            separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false
        )
        guard let whole = parts.first, (1...Self.digitLimit).contains(whole.count), whole.allSatisfy(Self.isDigit),
            number.count <= 2 * Self.digitLimit
        else { return nil }
        var seconds: Int64 = 0
        for digit in whole { seconds = seconds * 10 + Int64(digit - UInt8(ascii: "0")) }
        var hasFraction = false
        if parts.count == 2 {
            guard parts[1].allSatisfy(Self.isDigit) else { return nil }
            hasFraction = parts[1].contains { $0 != UInt8(ascii: "0") }
        }
        floor = isNegative ? -seconds - (hasFraction ? 1 : 0) : seconds
        ceiling = floor + (hasFraction ? 1 : 0)
    }

    private static func isDigit(_ byte: UInt8) -> Bool { 0x30...0x39 ~= byte }
}
