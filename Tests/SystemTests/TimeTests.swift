import System
import Testing

@Suite struct TimeTests {
    @Test(
        arguments: [
            (Duration.seconds(-1), 0), (.zero, 0), (.nanoseconds(1), 1), (.milliseconds(1_500), 1_500_000_000),
            (.seconds(18_446_744_073), 18_446_744_073_000_000_000), (.seconds(18_446_744_074), .max),
            (.seconds(18_446_744_073) + .milliseconds(710), .max), (.seconds(Int64.max), .max),
        ] as [(Duration, UInt64)]
    )
    func `a duration is counted in nanoseconds, as far as they go`(_ duration: Duration, _ expected: UInt64) {
        #expect(Nanoseconds(duration).count == expected)
    }

    @Test func `times add up to never and differ by nothing below zero`() {
        let (early, late) = (MonotonicTime(nanoseconds: 1), MonotonicTime(nanoseconds: 5))
        #expect((late - early).count == 4)
        #expect((early - late).count == 0)
        #expect(early + Nanoseconds(count: 4) == late)
        #expect(late + Nanoseconds(count: .max) == .never)
    }

    @Test func `each day of 1,000 years follows the one before, and is written as its date`() throws {
        func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64? {
            CalendarDay.daysSince1970(year: year, month: month, day: day)
        }
        #expect(days(1970, 1, 1) == 0)
        #expect(days(1, 1, 1) == -719_162)
        var (next, wrong) = (try #require(days(1600, 1, 1)), 0)
        for year in Int64(1600)..<2600 {
            for month in Int64(1)...12 {
                for day in Int64(1)...31 {
                    guard let number = days(year, month, day) else { continue }
                    let date = "\(year)-\(month < 10 ? "0" : "")\(month)-\(day < 10 ? "0" : "")\(day)"
                    if number != next || UTCTime.text(number * 86_400, "%F") != date { wrong += 1 }
                    next += 1
                }
            }
        }
        #expect(wrong == 0 && next == days(2600, 1, 1))
        for (year, month, day) in [
            (1900, 2, 29), (2001, 2, 29), (2000, 2, 30), (2000, 4, 31), (2000, 13, 1), (2000, 0, 1), (2000, 1, 0),
        ] {
            #expect(days(Int64(year), Int64(month), Int64(day)) == nil)
        }
    }

    @Test func `a time is written in UTC, and one that has no date as a number`() {
        #expect(UTCTime.timestamp(1_795_226_584, fraction: ".007") == "2026-11-21T02:03:04.007Z")
        #expect(UTCTime.timestamp(-1) == "1969-12-31T23:59:59Z")
        #expect(UTCTime.text(1_795_226_584, "%d/%b/%Y:%H:%M:%S +0000") == "21/Nov/2026:02:03:04 +0000")
        #expect(UTCTime.timestamp(.max) == "9223372036854775807")
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
