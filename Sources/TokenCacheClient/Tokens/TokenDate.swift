import Foundation

/// A date in token info: written as `yyyy-MM-dd'T'HH:mm:ss.SSS+0000` in UTC, read in every form that devices have written.
///
/// The guide's sample client formats dates by `yyyy-MM-dd'T'HH:mm:ss.SSSZZZ` without a fixed locale, so what it writes depends
/// on the device (Apple's Technical Q&A QA1480), and it sends them without escaping. Therefore these are read as well: a space in
/// place of the offset's plus sign, which form decoding turns into one; offsets `Z`, `±hh:mm` and with seconds; no fraction, or
/// one of up to nine digits; the decimal digits of any script; invisible format characters; a 12-hour clock with its marker, as
/// in `10:30:33.123 PM+0100`; dates of the Buddhist, Persian and Hijri calendars around the present. Others are not read.
///
/// As on the server, every minute has 60 seconds, and a date before 2004, when there was no Facebook, is taken for one of another
/// calendar and not read. The years 0 to 2 are the SDK's distant past, as calendars and zones count ancient days differently; as an
/// expiration it counts as unread too, so that both agree on which tokens have expired.
enum TokenDate {
    /// The instant; nil if the text has none of these forms.
    static func parse(_ text: String) -> Date? {
        // No date is longer, even with digits of four bytes.
        guard text.utf8.count <= 200 else { return nil }
        var reader = TokenDateReader(text)
        return reader.date()
    }

    /// The date in UTC, rounded to milliseconds, and moved into the years 1 to 9999.
    ///
    /// A date after 2442 becomes the distant future, as later years could be read as Buddhist ones.
    static func text(_ date: Date) -> String {
        let isNever = date.timeIntervalSince1970 >= startOf2443 && date < .distantFuture
        let rounded = ((isNever ? Date.distantFuture : date).timeIntervalSince1970 * 1_000).rounded()
        let milliseconds = min(max(rounded, Date.distantPast.timeIntervalSince1970 * 1_000), latest)
        let seconds = (milliseconds / 1_000).rounded(.down)
        let parts = calendar(.gregorian).dateComponents(
            [.year, .month, .day, .hour, .minute, .second], from: Date(timeIntervalSince1970: seconds))
        func padded(_ number: Int?, _ digits: Int) -> String {
            let text = String(number ?? 0)
            return String(repeating: "0", count: max(0, digits - text.count)) + text
        }
        return "\(padded(parts.year, 4))-\(padded(parts.month, 2))-\(padded(parts.day, 2))T"
            + "\(padded(parts.hour, 2)):\(padded(parts.minute, 2)):\(padded(parts.second, 2))"
            + ".\(padded(Int(milliseconds - seconds * 1_000), 3))+0000"
    }

    fileprivate static func calendar(_ identifier: Calendar.Identifier) -> Calendar {
        var calendar = Calendar(identifier: identifier)
        calendar.timeZone = .gmt
        return calendar
    }

    fileprivate static let startOf2004 = Date(timeIntervalSince1970: 1_072_915_200)
    private static let startOf2443: TimeInterval = 14_926_464_000
    /// 9999-12-31T23:59:59Z in milliseconds.
    private static let latest: TimeInterval = 253_402_300_799_000
}

/// Reads one date of `TokenDate`.
private struct TokenDateReader {
    private let scalars: [Unicode.Scalar]
    private var position = 0

    init(_ text: String) {
        scalars = text.unicodeScalars.compactMap(Self.plain)
    }

    mutating func date() -> Date? {
        guard let year = number(digits: 4), accept("-"), let month = number(digits: 2), accept("-"),
            let day = number(digits: 2), accept("T")
        else { return nil }
        // Chinese, Japanese and Korean devices write the marker before the time.
        let early = halfOfDay()
        if early != nil { _ = accept(" ") }
        guard let time = timeOfDay(early) else { return nil }
        guard let date = Self.day(year: Self.gregorian(year), month: month, day: day), let offset = zoneOffset(),
            position == scalars.count
        else { return nil }
        if date == .distantPast { return date }
        let instant = date + TimeInterval(time.seconds - offset) + time.fraction
        return instant >= TokenDate.startOf2004 ? instant : nil
    }

    // MARK: - Other scripts, calendars and clocks

    /// The ASCII form of digits, spaces and signs of other scripts; nil for invisible characters, such as the right-to-left mark
    /// that Arabic and Hebrew devices put around signs.
    private static func plain(_ scalar: Unicode.Scalar) -> Unicode.Scalar? {
        guard !scalar.isASCII else { return scalar }
        let properties = scalar.properties
        switch properties.generalCategory {
        case .format: return nil
        case .spaceSeparator: return " "
        case .decimalNumber: return properties.numericValue.flatMap { Unicode.Scalar(UInt8(0x30 + $0)) }
        default: break
        }
        switch scalar {
        case "\u{066b}": return "."
        case "\u{2212}": return "-"
        default: return scalar
        }
    }

    /// The year in the Gregorian calendar: Buddhist years around the present are 543 ahead.
    ///
    /// So are those of the SDK's distant past and future, 544 and 4544, which are a year off in some time zones.
    private static func gregorian(_ year: Int) -> Int {
        let isBuddhist = (2_443...2_742).contains(year) || (544...545).contains(year) || (4_543...4_545).contains(year)
        return isBuddhist ? year - 543 : year
    }

    /// The beginning of a day in the Gregorian, the Persian or the Hijri calendar, whose years around the present differ.
    private static func day(year: Int, month: Int, day: Int) -> Date? {
        guard (1...12).contains(month), (1...31).contains(day) else { return nil }
        if year < 3 { return .distantPast }
        let calendar =
            switch year {
            case 1_391...1_420: TokenDate.calendar(.persian)
            // The calendar of phones in Saudi Arabia; arithmetic variants differ by a day at most.
            case 1_433...1_463: TokenDate.calendar(.islamicUmmAlQura)
            default: TokenDate.calendar(.gregorian)
            }
        let parts = DateComponents(year: year, month: month, day: day)
        // The calendar would take the 31st of a month with 30 days for the first of the next one.
        guard let date = calendar.date(from: parts),
            calendar.dateComponents([.year, .month, .day], from: date) == parts
        else { return nil }
        return date
    }

    private enum HalfOfDay {
        case morning
        case afternoon
    }

    /// The markers of Unicode's locale data for the languages with a 12-hour clock, without dots and spaces.
    private static let markers: [String: HalfOfDay] = [
        "am": .morning, "pm": .afternoon, "ص": .morning, "م": .afternoon, "上午": .morning, "下午": .afternoon,
        "午前": .morning, "午後": .afternoon, "오전": .morning, "오후": .afternoon, "πμ": .morning, "μμ": .afternoon,
    ]

    /// Reads a marker with the spaces before it; does not move if there is none.
    private mutating func halfOfDay() -> HalfOfDay? {
        let start = position
        var name = ""
        while let scalar = peek(), scalar == " " || scalar == "." || scalar.properties.isAlphabetic {
            // A final Z is the zone, and a space before a digit is the zone's plus sign.
            if scalar == "Z", position + 1 == scalars.count { break }
            if scalar == " ", !name.isEmpty, Self.markers[name] != nil, isDigit(at: position + 1) { break }
            if scalar != " ", scalar != "." { name.unicodeScalars.append(scalar) }
            position += 1
            name = name.lowercased()
        }
        if let found = Self.markers[name] { return found }
        position = start
        return nil
    }

    // MARK: - Parts

    private mutating func timeOfDay(_ early: HalfOfDay?) -> (seconds: Int, fraction: TimeInterval)? {
        let digits = isDigit(at: position + 1) ? 2 : 1
        guard var hour = number(digits: digits), hour < 24, accept(":"), let minute = number(digits: 2), minute < 60,
            accept(":"), let second = number(digits: 2), second < 60, let fraction = fraction()
        else { return nil }
        if let half = early ?? halfOfDay() {
            switch half {
            case .morning where hour == 12: hour = 0
            case .morning where hour > 12: return nil
            case .afternoon where hour < 12: hour += 12
            default: break
            }
        } else if digits == 1 {
            return nil
        }
        return (hour * 3_600 + minute * 60 + second, fraction)
    }

    /// The fraction of a second, 0 without a point; nil if there are no digits after the point, or too many.
    private mutating func fraction() -> TimeInterval? {
        guard accept(".") else { return 0 }
        var (value, unit): (TimeInterval, TimeInterval) = (0, 1)
        let start = position
        while let digit = digit(at: position), position - start < 10 {
            value = value * 10 + TimeInterval(digit)
            unit *= 10
            position += 1
        }
        return (1...9).contains(position - start) ? value / unit : nil
    }

    private mutating func zoneOffset() -> Int? {
        if accept("Z") { return 0 }
        let sign: Int = peek() == "-" ? -1 : 1
        guard accept("+") || accept(" ") || accept("-"), let hours = number(digits: 2), hours < 24 else { return nil }
        // Two digits each, with colons between all parts or none.
        let hasColons = peek() == ":"
        var offset = hours * 3_600
        for unit: Int in [60, 1] {
            if unit == 1, position == scalars.count { break }
            guard !hasColons || accept(":"), let part = number(digits: 2), part < 60 else { return nil }
            offset += part * unit
        }
        return sign * offset
    }

    // MARK: - Characters

    private func peek() -> Unicode.Scalar? {
        position < scalars.count ? scalars[position] : nil
    }

    private mutating func accept(_ scalar: Unicode.Scalar) -> Bool {
        guard peek() == scalar else { return false }
        position += 1
        return true
    }

    private mutating func number(digits: Int) -> Int? {
        var value: Int = 0
        for index in position..<(position + digits) {
            guard let digit = digit(at: index) else { return nil }
            value = value * 10 + digit
        }
        position += digits
        return value
    }

    private func digit(at index: Int) -> Int? {
        guard index < scalars.count, ("0"..."9").contains(scalars[index]) else { return nil }
        return Int(scalars[index].value - 0x30)
    }

    private func isDigit(at index: Int) -> Bool {
        digit(at: index) != nil
    }
}
