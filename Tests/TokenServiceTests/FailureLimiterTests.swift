import HTTP
import System
import TestSupport
import Testing

@testable import TokenService

@Suite struct FailureLimiterTests {
    private static let second: UInt64 = 1_000_000_000
    private let start = 1_000 * FailureLimiterTests.second

    private func limiter(_ rate: String = "30/min") throws -> FailureLimiter {
        let rate: FailureRate = try #require(FailureRate(rate))
        return FailureLimiter(rate)
    }

    private func address(_ text: String) throws -> IPAddress { try #require(IPAddress(text)) }

    /// How many requests of addresses are looked up at one moment, if all of them fail.
    private func admitted(
        _ limiter: FailureLimiter, _ addresses: some Sequence<IPAddress>, at time: UInt64
    ) -> Int {
        let time = MonotonicTime(nanoseconds: time)
        return addresses.count { address in
            guard limiter.wait(for: address, at: time) == nil else { return false }
            limiter.noteFailure(from: address, at: time)
            return true
        }
    }

    @Test func `an address may fail as often as the rate says, and then once an interval`() throws {
        let limiter = try limiter()
        let one = try address("192.0.2.1")
        #expect(admitted(limiter, repeatElement(one, count: 100), at: start) == 30)
        #expect(
            limiter.wait(for: one, at: MonotonicTime(nanoseconds: start + Self.second / 2)) == .milliseconds(1_500))
        #expect(admitted(limiter, repeatElement(one, count: 3), at: start + 2 * Self.second) == 1)
        // Nobody else is affected.
        #expect(admitted(limiter, repeatElement(try address("192.0.2.2"), count: 31), at: start) == 30)
        #expect(admitted(limiter, repeatElement(one, count: 100), at: start + 3_600 * Self.second) == 30)
    }

    @Test func `failures that were on their way when the limit was reached are made up for as well`() throws {
        let limiter = try limiter()
        let (one, time) = (try address("192.0.2.1"), MonotonicTime(nanoseconds: start))
        for _ in 0..<45 { limiter.noteFailure(from: one, at: time) }
        #expect(limiter.wait(for: one, at: time) == .seconds(2 * 16))
    }

    @Test func `an address is one in both forms, its IPv6 network is one, and Unix sockets are not limited`() throws {
        let limiter = try limiter("1/h")
        let texts = ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:1::1", "2001:db8:1:1:ffff::2", "2001:db8:1:2::1"]
        #expect(try admitted(limiter, texts.map(address), at: start) == 3)
        let time = MonotonicTime(nanoseconds: start)
        for _ in 0..<9 { limiter.noteFailure(from: nil, at: time) }
        #expect(limiter.wait(for: nil, at: time) == nil)
    }

    @Test func `the rate can be changed, which forgets all failures, and no rate limits nothing`() throws {
        let limiter = try limiter()
        let one = try address("192.0.2.1")
        #expect(admitted(limiter, repeatElement(one, count: 50), at: start) == 30)
        limiter.setRate(FailureRate("30/min"))
        #expect(admitted(limiter, [one], at: start) == 0)
        limiter.setRate(FailureRate("2/s"))
        #expect(admitted(limiter, repeatElement(one, count: 50), at: start) == 2)
        limiter.setRate(nil)
        #expect(admitted(limiter, repeatElement(one, count: 50), at: start) == 50)
        #expect(limiter.addressCount == 0)
    }

    /// The same rule in its other form, a leaky bucket (ITU-T I.371, annex A), with exact numbers.
    private struct Model {
        let interval: UInt64
        let capacity: UInt64
        var buckets: [UInt64: (level: UInt64, time: UInt64)] = [:]

        init(_ rate: FailureRate) {
            interval = Nanoseconds(rate.interval).count
            capacity = interval * UInt64(rate.count)
        }

        /// The wait until one more failure fits in; nil if it does now, and is then counted.
        mutating func note(_ key: UInt64, at now: UInt64) -> UInt64? {
            let bucket = buckets[key] ?? (0, 0)
            let leaked = now - bucket.time
            let level = bucket.level > leaked ? bucket.level - leaked : 0
            if level + interval > capacity { return level + interval - capacity }
            buckets[key] = (level + interval, now)
            return nil
        }
    }

    @Test(arguments: zip(1...24, ["30/min", "1/s", "7/s", "1/h", "100/h", "1000/min"].flatMap { [$0, $0, $0, $0] }))
    func `answers are those of an exact model`(seed: Int, rate: String) throws {
        let rate = try #require(FailureRate(rate))
        let limiter = FailureLimiter(rate)
        var model = Model(rate)
        var generator = SeededGenerator(seed: UInt64(seed))
        var now = start
        for step in 0..<4_000 {
            // Bursts, pauses around one interval, and now and then a pause in which much is made up for.
            switch Int.random(in: 0..<10, using: &generator) {
            case 0...5: break
            case 6...8: now += .random(in: 0...model.interval, using: &generator)
            default: now += .random(in: 0...model.capacity, using: &generator)
            }
            let number = UInt64.random(in: 0..<6, using: &generator)
            let address = try address(number < 3 ? "10.0.0.\(number)" : "2001:db8:0:\(number)::\(step % 9)")
            let time = MonotonicTime(nanoseconds: now)
            let wait = limiter.wait(for: address, at: time)
            if wait == nil { limiter.noteFailure(from: address, at: time) }
            try #require(
                wait == model.note(number, at: now).map { .nanoseconds(Int64($0)) },
                "seed \(seed), rate \(rate), step \(step)")
        }
    }

    @Test func `however many addresses fail, one that fails now and then is remembered`() throws {
        let limiter = try limiter()
        let guesser = try address("192.0.2.1")
        #expect(admitted(limiter, repeatElement(guesser, count: 29), at: start) == 29)
        for number in 0..<100_000 {
            let other = try address("2001:\(number % 10_000):\(number / 10_000)::")
            #expect(admitted(limiter, [other], at: start) == 1)
            #expect(limiter.addressCount <= 16_384)
            // Before others have filled the table; two seconds make up for one failure.
            if number % 12_000 == 11_999 {
                limiter.noteFailure(from: guesser, at: MonotonicTime(nanoseconds: start))
                #expect(limiter.wait(for: guesser, at: MonotonicTime(nanoseconds: start)) != nil)
            }
        }
    }

    @Test func `many threads at once count every failure`() async throws {
        let limiter = try limiter("8000/h")
        let (one, time) = (try address("192.0.2.1"), MonotonicTime(nanoseconds: start))
        await withTaskGroup { group in
            for _ in 0..<4 {
                group.addTask { for _ in 0..<2_000 { limiter.noteFailure(from: one, at: time) } }
            }
        }
        // All 8,000 at once are within the rate, and none more.
        #expect(limiter.wait(for: one, at: time) == .milliseconds(450))
    }
}
