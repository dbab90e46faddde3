import FoundationEssentials

/// Formats numbers and times for people.
enum Text {
    /// A number with separators: `1,234,567`.
    static func number(_ number: Int) -> String {
        let digits = String(number.magnitude)
        var text = ""
        for (index, digit) in digits.enumerated() {
            if index > 0 && (digits.count - index) % 3 == 0 { text.append(",") }
            text.append(digit)
        }
        return number < 0 ? "-" + text : text
    }

    /// A size in bytes: `12.3 MiB`.
    static func bytes(_ bytes: Int) -> String {
        let units = ["KiB", "MiB", "GiB", "TiB"]
        guard bytes >= 1_024 else { return count(bytes, "byte") }
        var value = Double(bytes) / 1_024
        var unit = 0
        while value >= 1_024 && unit < units.count - 1 {
            value /= 1_024
            unit += 1
        }
        return "\((value * 10).rounded() / 10) \(units[unit])"
    }

    /// `1 token`, `2 tokens`.
    static func count(_ count: Int, _ noun: String) -> String {
        "\(number(count)) \(noun)\(count == 1 ? "" : "s")"
    }

    /// A duration in its two largest units: `3d 4h`, `5m 6s`.
    static func age(_ seconds: Int64) -> String {
        let seconds = max(0, seconds)
        switch seconds {
        case 86_400...: return "\(seconds / 86_400)d \(seconds % 86_400 / 3_600)h"
        case 3_600...: return "\(seconds / 3_600)h \(seconds % 3_600 / 60)m"
        case 60...: return "\(seconds / 60)m \(seconds % 60)s"
        default: return "\(seconds)s"
        }
    }

    /// The duration between two times, in its two largest units; 0 if it is negative or overflows.
    static func age(from start: Int64, to end: Int64) -> String {
        let (seconds, hasOverflowed) = end.subtractingReportingOverflow(start)
        return age(hasOverflowed ? 0 : seconds)
    }

    /// The text with control characters escaped as in `\u{1b}`, because clients choose it and a terminal would interpret them.
    static func visible(_ text: String) -> String {
        var visible = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator:
                visible.append(contentsOf: scalar.escaped(asASCII: true).unicodeScalars)
            default: visible.append(scalar)
            }
        }
        return String(visible)
    }

    /// A time: `2026-11-21T02:03:04Z`.
    static func time(_ unixTime: Int64) -> String {
        Date(timeIntervalSince1970: TimeInterval(unixTime)).formatted(.iso8601)
    }
}
