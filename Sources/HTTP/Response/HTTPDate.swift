/// Dates as HTTP writes them: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
package enum HTTPDate {
    private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    package static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// - Parameter unixTime: Seconds since 1970, not negative.
    package static func text(unixTime: Int64) -> [UInt8] {
        let (days, second) = unixTime.quotientAndRemainder(dividingBy: 86_400)
        let (year, month, day) = date(daysSince1970: Int(days))
        let (hour, minute) = (second / 3_600, second / 60 % 60)
        let weekday = weekdays[Int(days % 7)]
        let time = "\(twoDigits(hour)):\(twoDigits(minute)):\(twoDigits(second % 60))"
        return Array("\(weekday), \(twoDigits(Int64(day))) \(months[month - 1]) \(year) \(time) GMT".utf8)
    }

    /// A number below 100 with a leading zero.
    package static func twoDigits(_ number: Int64) -> String {
        number < 10 ? "0\(number)" : "\(number)"
    }

    /// The Gregorian date of a day, counted in eras of 400 years that begin on 1 March, so that the leap day comes last.
    package static func date(daysSince1970: Int) -> (year: Int, month: Int, day: Int) {
        let shifted = daysSince1970 + 719_468
        let era = shifted / 146_097
        let dayOfEra = shifted % 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
        let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day)
    }
}
