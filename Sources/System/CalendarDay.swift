/// A day of the Gregorian calendar, which is used for days before 1582 too.
///
/// Years are counted in eras of 400 that begin on 1 March, so that the leap day is the last of its year, and the days before a
/// month are always the same: 31, 30, 31, 30, 31 from March, again from August, and again from January.
package struct CalendarDay: Hashable, Sendable {
    package let year: Int64
    /// From 1.
    package let month: Int64
    /// From 1.
    package let day: Int64

    /// From the first of March of the year -400 to the first of January of 1970.
    private static let daysBefore1970: Int64 = 865_565

    /// Nil if the month has no such day.
    ///
    /// - Parameter year: From 0.
    package init?(year: Int64, month: Int64, day: Int64) {
        guard (1...12).contains(month), day >= 1, day <= Self.daysInMonth(month, of: year) else { return nil }
        (self.year, self.month, self.day) = (year, month, day)
    }

    /// - Parameter days: Days since 1970-01-01, not before the year -400.
    package init(daysSince1970 days: Int64) {
        let (era, dayOfEra) = (days + Self.daysBefore1970).quotientAndRemainder(dividingBy: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let isAfterNewYear = monthFromMarch >= 10
        year = (era - 1) * 400 + yearOfEra + (isAfterNewYear ? 1 : 0)
        month = isAfterNewYear ? monthFromMarch - 9 : monthFromMarch + 3
        day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
    }

    package var daysSince1970: Int64 {
        let (shiftedYear, shiftedMonth) = month > 2 ? (year + 400, month - 3) : (year + 399, month + 9)
        let leapDays = shiftedYear / 4 - shiftedYear / 100 + shiftedYear / 400
        return shiftedYear * 365 + leapDays + (153 * shiftedMonth + 2) / 5 + day - 1 - Self.daysBefore1970
    }

    private static func daysInMonth(_ month: Int64, of year: Int64) -> Int64 {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }
}
