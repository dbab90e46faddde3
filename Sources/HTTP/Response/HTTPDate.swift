internal import System

/// Dates as HTTP writes them: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
package enum HTTPDate {
    private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    package static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// - Parameter unixTime: Seconds since 1970, not negative.
    package static func text(unixTime: Int64) -> [UInt8] {
        let (days, second) = unixTime.quotientAndRemainder(dividingBy: 86_400)
        let day = CalendarDay(daysSince1970: days)
        let (hour, minute) = (second / 3_600, second / 60 % 60)
        let weekday = weekdays[Int(days % 7)]
        let time = "\(twoDigits(hour)):\(twoDigits(minute)):\(twoDigits(second % 60))"
        return Array("\(weekday), \(twoDigits(day.day)) \(months[Int(day.month) - 1]) \(day.year) \(time) GMT".utf8)
    }

    /// A number below 100 with a leading zero.
    package static func twoDigits(_ number: Int64) -> String {
        number < 10 ? "0\(number)" : "\(number)"
    }
}
