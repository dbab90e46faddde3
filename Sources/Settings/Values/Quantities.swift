/// Sizes and times as people write them in settings.
package enum Quantities {
    /// Reads a number of digits alone; nil if the text is none.
    static func number(_ text: String) -> Int? {
        text.allSatisfy { $0.isASCII && $0.isNumber } ? Int(text) : nil
    }

    /// Reads a number of bytes, such as `8192`, `8 KiB`, `1MiB` or `1 GiB`; nil if the text is none.
    static func bytes(_ text: String) -> Int? {
        guard let (number, unit) = split(text) else { return nil }
        let factor: Int
        switch unit {
        case "", "B": factor = 1
        case "KiB": factor = 1 << 10
        case "MiB": factor = 1 << 20
        case "GiB": factor = 1 << 30
        default: return nil
        }
        let (product, overflow) = number.multipliedReportingOverflow(by: factor)
        return overflow ? nil : product
    }

    /// Reads a length of time, such as `500ms`, `10s`, `2m`, `1h` or `30d`.
    ///
    /// A number without a unit is in seconds. Nil if the text is no length of time.
    package static func duration(_ text: String) -> Duration? {
        guard let (number, unit) = split(text) else { return nil }
        // A century is longer than anything waits, and keeps the sums below from overflowing.
        guard number < 36_500 * 86_400 else { return nil }
        switch unit {
        case "ms": return .milliseconds(number)
        case "", "s": return .seconds(number)
        case "m": return .seconds(number * 60)
        case "h": return .seconds(number * 3_600)
        case "d": return .seconds(number * 86_400)
        default: return nil
        }
    }

    private static func split(_ text: String) -> (number: Int, unit: String)? {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        guard let number = Int(digits) else { return nil }
        let unit = text[digits.endIndex...].drop { $0 == " " }
        return (number, String(unit))
    }

    /// Writes a number of bytes as `bytes` reads it: `8 KiB`, `1 MiB`, or the number alone.
    static func text(bytes: Int) -> String {
        if bytes == 0 { return "0" }
        if bytes % (1 << 30) == 0 { return "\(bytes >> 30) GiB" }
        if bytes % (1 << 20) == 0 { return "\(bytes >> 20) MiB" }
        if bytes % (1 << 10) == 0 { return "\(bytes >> 10) KiB" }
        return "\(bytes)"
    }

    /// Writes a length of time as `duration` reads it: `10s`, `500ms`, `90d`.
    static func text(_ duration: Duration) -> String {
        let (seconds, attoseconds) = duration.components
        if attoseconds == 0 && seconds > 0 && seconds % 86_400 == 0 { return "\(seconds / 86_400)d" }
        return attoseconds == 0
            ? "\(seconds)s" : "\(seconds * 1_000 + attoseconds / 1_000_000_000_000_000)ms"
    }
}
