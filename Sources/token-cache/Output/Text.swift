import FoundationEssentials

/// Numbers and times as people read them.
enum Text {
    /// As in `1,234,567`.
    static func number(_ number: Int) -> String {
        let digits = String(number.magnitude)
        var text = ""
        for (index, digit) in digits.enumerated() {
            if index > 0 && (digits.count - index) % 3 == 0 { text.append(",") }
            text.append(digit)
        }
        return number < 0 ? "-" + text : text
    }

    /// As in `12.3 MiB`.
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

    /// How long ago a moment was, as in `3d` or `5h`, in its two largest parts.
    static func age(_ seconds: Int64) -> String {
        let seconds = max(0, seconds)
        switch seconds {
        case 86_400...: return "\(seconds / 86_400)d \(seconds % 86_400 / 3_600)h"
        case 3_600...: return "\(seconds / 3_600)h \(seconds % 3_600 / 60)m"
        case 60...: return "\(seconds / 60)m \(seconds % 60)s"
        default: return "\(seconds)s"
        }
    }

    /// How long it is from one moment to another, 0 where it is less or out of all reason.
    static func age(from start: Int64, to end: Int64) -> String {
        let (seconds, hasOverflowed) = end.subtractingReportingOverflow(start)
        return age(hasOverflowed ? 0 : seconds)
    }

    /// The text on one line, with `\u{1b}` for what a terminal would obey: a client has chosen it.
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

    /// As in `2026-11-21T02:03:04Z`.
    static func time(_ unixTime: Int64) -> String {
        Date(timeIntervalSince1970: TimeInterval(unixTime)).formatted(.iso8601)
    }
}
