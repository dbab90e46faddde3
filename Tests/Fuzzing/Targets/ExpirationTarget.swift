import Foundation
import TokenStore

extension FuzzTarget {
    /// The expiration date in a token info.
    static let expirations = FuzzTarget(
        "expirations",
        words: [
            "\"", ":", "\\", "1", " ",
            "\"com.facebook.sdk:TokenInformationExpirationDateKey\":", "\"2013-08-14T19:24:05.123+0000\"",
            "2016-02-29T",
            "T23:59:59", ".999999999", "Z", "+00:00", "-0800", " 0100", "+053045", "9999-12-31", "0000-03-01", "24",
            "60", "-",
        ]
    ) { input in
        _ = TokenExpiration.expiration(of: input.span)
        // The text of a date, and a token info with it.
        let date = ExpirationDate.seconds(input.span)
        try compare(date, seconds(input.text), "the date")
        guard let date, input.text.allSatisfy({ $0 != "\"" && $0 != "\\" }) else { return }
        let key = Array(#"{"com.facebook.sdk:TokenInformationExpirationDateKey":""#.utf8)
        let info = key + input + Array("\"}".utf8)
        try compare(
            TokenExpiration.expiration(of: info.span), input.count <= 40 ? date : nil, "the date in a token info")
    }

    /// `yyyy-MM-dd'T'HH:mm:ss[.fraction]zone`, by the calendar of Foundation.
    private static func seconds(_ text: Text) -> Int64? {
        var rest = text
        func number(_ digits: Int, atMost limit: Int, before separator: Unicode.Scalar? = nil) -> Int? {
            let part = rest.prefix(digits)
            guard part.count == digits, part.isDigits, let number = Int(part.string), number <= limit else {
                return nil
            }
            rest = rest.dropFirst(digits)
            if let separator, rest.popFirst() != separator { return nil }
            return number
        }
        guard let year = number(4, atMost: 9_999, before: "-"), let month = number(2, atMost: 12, before: "-"),
            let day = number(2, atMost: 31, before: "T"), let hour = number(2, atMost: 23, before: ":"),
            let minute = number(2, atMost: 59, before: ":"), let second = number(2, atMost: 59), month > 0, day > 0
        else { return nil }
        if rest.first == "." {
            let digits = rest.dropFirst().prefix(while: \.isDigit)
            guard (1...9).contains(digits.count) else { return nil }
            rest = rest.dropFirst(digits.count + 1)
        }
        guard let zone = zone(rest), day <= daysInMonth(year, month) else { return nil }
        // Days before the year in the Gregorian calendar, whose cycle is 400 years of 146,097 days.
        let past = year + 400 - 1
        let days = past * 365 + past / 4 - past / 100 + past / 400 - 146_097 - 719_162
        let inYear = (1..<month).reduce(0) { $0 + daysInMonth(year, $1) } + day - 1
        let seconds = Int64((days + inYear) * 86_400 + hour * 3_600 + minute * 60 + second - zone)
        // Between the SDK's distant past and 2004 are the years of other calendars.
        return (-62_072_524_800..<1_072_915_200).contains(seconds) ? nil : seconds
    }

    private static func daysInMonth(_ year: Int, _ month: Int) -> Int {
        let isLeap = year.isMultiple(of: 4) && (!year.isMultiple(of: 100) || year.isMultiple(of: 400))
        return [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
    }

    /// Seconds east of Greenwich.
    private static func zone(_ text: Text) -> Int? {
        if text.elementsEqual(["Z"]) { return 0 }
        guard let sign = text.first, "+- ".unicodeScalars.contains(sign) else { return nil }
        let body = text.dropFirst()
        var parts = body.split(separator: ":", omittingEmptySubsequences: false)
        if parts.count == 1 {
            let digits = Array(body)
            parts = stride(from: 0, to: digits.count, by: 2).map { digits[$0..<min($0 + 2, digits.count)] }
        }
        let numbers = parts.map { $0.count == 2 && $0.isDigits ? Int($0.string) ?? 99 : 99 }
        guard (2...3).contains(numbers.count), numbers[0] < 24, numbers.dropFirst().allSatisfy({ $0 < 60 }) else {
            return nil
        }
        let offset = zip(numbers, [3_600, 60, 1]).reduce(0) { $0 + $1.0 * $1.1 }
        return sign == "-" ? -offset : offset
    }
}
