internal import HTTP
internal import Settings
internal import System

/// One entry of the server's log, before formatting.
struct LogLine {
    /// Milliseconds since 1970.
    let unixMilliseconds: Int64
    let level: String
    let message: String
    /// Further information beside the message, by name.
    let fields: [(name: String, value: String)]

    /// The formatted line, with its newline.
    ///
    /// Text: `2026-11-21T02:03:04.567Z info: the message name=value`. JSON: an object with `time`, `level`, `message` and
    /// the fields.
    func text(_ format: LogFormat) -> String {
        switch format {
        case .text:
            "\(time) \(level): \(messageWithFields)\n"
        case .json:
            #"{"time":"\#(time)","level":"\#(level)","message":\#(Self.quoted(message))"#
                + fields.map { #","\#($0.name)":\#(Self.quoted($0.value))"# }.joined() + "}\n"
        }
    }

    /// On one line, without the time and the level: `the message name=value`.
    var messageWithFields: String {
        Self.visible(message) + fields.map { " \($0.name)=\(Self.visible($0.value))" }.joined()
    }

    private var time: String {
        let (second, millisecond) = unixMilliseconds.quotientAndRemainder(dividingBy: 1_000)
        let digits = String(1_000 + millisecond).dropFirst()
        return LogTime.text(second, fraction: ".\(digits)")
    }

    /// The text with control characters replaced by spaces, so that no part of it can pass for a line of its own.
    private static func visible(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        return String(String.UnicodeScalarView(text.unicodeScalars.map { isControl($0) ? " " : $0 }))
    }

    private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        scalar.properties.generalCategory == .control || scalar == "\u{2028}" || scalar == "\u{2029}"
    }

    /// The text as a JSON string, with its quotation marks (RFC 8259, section 7).
    static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\":
                quoted += "\\"
                quoted.unicodeScalars.append(scalar)
            case "\n": quoted += "\\n"
            case "\t": quoted += "\\t"
            case _ where isControl(scalar):
                let digits = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}

/// Formats times as RFC 3339 defines them, in UTC.
package enum LogTime {
    /// A time such as `2026-11-21T02:03:04Z`.
    ///
    /// - Parameters:
    ///   - unixTime: Seconds since 1970.
    ///   - fraction: Appended to the seconds, such as `.567`.
    package static func text(_ unixTime: Int64, fraction: String = "") -> String {
        let date = CalendarDay(daysSince1970: unixTime / 86_400)
        let day = "\(date.year)-\(HTTPDate.twoDigits(date.month))-\(HTTPDate.twoDigits(date.day))"
        return "\(day)T\(clock(unixTime))\(fraction)Z"
    }

    /// The time of day: `02:03:04`.
    static func clock(_ unixTime: Int64) -> String {
        let second = unixTime % 86_400
        let (hour, minute) = (HTTPDate.twoDigits(second / 3_600), HTTPDate.twoDigits(second / 60 % 60))
        return "\(hour):\(minute):\(HTTPDate.twoDigits(second % 60))"
    }
}
