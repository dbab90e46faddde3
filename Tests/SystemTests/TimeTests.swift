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
