import System
import Testing

@Suite struct TimeTests {
    @Test(
        arguments: [
            (Duration.seconds(-1), 0), (.zero, 0), (.nanoseconds(1), 1), (.milliseconds(1_500), 1_500_000_000),
        ] as [(Duration, UInt64)]
    )
    func `a duration is counted in nanoseconds and is never negative`(_ duration: Duration, _ expected: UInt64) {
        #expect(Nanoseconds(duration).count == expected)
    }

    @Test func `times add up to never and differ by nothing below zero`() {
        let (early, late) = (MonotonicTime(nanoseconds: 1), MonotonicTime(nanoseconds: 5))
        #expect((late - early).count == 4)
        #expect((early - late).count == 0)
        #expect(early + Nanoseconds(count: 4) == late)
        #expect(late + Nanoseconds(count: .max) == .never)
    }

    @Test func `each day of 1,000 years follows the one before, and is found by its date`() throws {
        let start = try #require(CalendarDay(year: 1600, month: 1, day: 1))
        #expect(try #require(CalendarDay(year: 1970, month: 1, day: 1)).daysSince1970 == 0)
        #expect(try #require(CalendarDay(year: 1, month: 1, day: 1)).daysSince1970 == -719_162)
        var (day, wrong) = (start, 0)
        for number in start.daysSince1970..<start.daysSince1970 + 365_243 {
            let found = CalendarDay(daysSince1970: number)
            if found != day || found.daysSince1970 != number { wrong += 1 }
            day =
                CalendarDay(year: day.year, month: day.month, day: day.day + 1)
                ?? CalendarDay(year: day.year, month: day.month + 1, day: 1)
                ?? CalendarDay(year: day.year + 1, month: 1, day: 1) ?? start
        }
        #expect(wrong == 0 && day == CalendarDay(year: 2600, month: 1, day: 1))
        for (year, month, day) in [
            (1900, 2, 29), (2001, 2, 29), (2000, 2, 30), (2000, 4, 31), (2000, 13, 1), (2000, 0, 1), (2000, 1, 0),
        ] {
            #expect(CalendarDay(year: Int64(year), month: Int64(month), day: Int64(day)) == nil)
        }
    }

    @Test func `the clock goes on`() {
        let before = MonotonicTime.now
        #expect(MonotonicTime.now >= before)
        #expect(SystemUptime.seconds > 0)
    }

    @Test func `a semaphore counts its signals, and a wait for another one ends`() {
        let semaphore = Semaphore(value: 1)
        semaphore.wait()
        semaphore.signal()
        #expect(semaphore.wait(atMost: .seconds(3_600)))
        let began = MonotonicTime.now
        #expect(!semaphore.wait(atMost: .milliseconds(20)))
        #expect(!semaphore.wait(atMost: .seconds(-1)))
        #expect((MonotonicTime.now - began).count >= 20_000_000)
    }
}
