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

    /// An IPv4 address or, from 2^32 on, one of the IPv6 network 2001::/16 that is alone in its network of 48 bits.
    private func address(numbered number: UInt64) -> IPAddress {
        let isIPv4 = number < 1 << 32
        let words = isIPv4 ? [0, 0xffff_0000_0000 | number] : [0x2001 << 48 | (number & 0xffff_ffff) << 16, 1]
        let bytes = words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64(56 - 8 * $0)) } }
        guard let address = IPAddress(networkOrder: bytes[...]) else { preconditionFailure("16 bytes are an address") }
        return address
    }

    /// How many failures of an address are within the rate at one moment.
    private func admitted(
        _ limiter: FailureLimiter, _ addresses: some Sequence<IPAddress>, at time: UInt64
    ) -> Int {
        addresses.count { limiter.noteFailure(from: $0, at: MonotonicTime(nanoseconds: time)) == nil }
    }

    @Test func `an address may fail as often as the rate says, and then once an interval`() throws {
        let limiter = try limiter()
        let one = try address("192.0.2.1")
        #expect(admitted(limiter, repeatElement(one, count: 100), at: start) == 30)
        #expect(
            limiter.noteFailure(from: one, at: MonotonicTime(nanoseconds: start + Self.second / 2))
                == .milliseconds(1_500))
        #expect(admitted(limiter, repeatElement(one, count: 3), at: start + 2 * Self.second) == 1)
        // Nobody else is affected.
        #expect(admitted(limiter, repeatElement(try address("192.0.2.2"), count: 31), at: start) == 30)
        #expect(admitted(limiter, repeatElement(one, count: 100), at: start + 3_600 * Self.second) == 30)
        #expect(limiter.counts == .init(failures: 235, limited: 235 - 91, evictions: 0))
        #expect(limiter.limitedAddresses(at: MonotonicTime(nanoseconds: start + 3_600 * Self.second)) == 1)
        #expect(limiter.limitedAddresses(at: MonotonicTime(nanoseconds: start + 3_602 * Self.second)) == 0)
    }

    @Test func `an IPv4 address and its IPv6 form are one, and Unix sockets are not limited`() throws {
        let limiter = try limiter("1/h")
        #expect(admitted(limiter, [try address("192.0.2.1"), try address("::ffff:192.0.2.1")], at: start) == 1)
        let time = MonotonicTime(nanoseconds: start)
        #expect((0..<9).allSatisfy { _ in limiter.noteFailure(from: nil, at: time) == nil })
        #expect(limiter.counts == .init(failures: 11, limited: 1, evictions: 0))
    }

    @Test func `whoever changes addresses within an IPv6 network of 64 or 48 bits is limited`() throws {
        let limiter = try limiter()
        let same = try (0..<500).map { try address("2001:db8:1:1::\(String($0, radix: 16))") }
        #expect(admitted(limiter, same, at: start) == 30)
        let networks = try (2..<2_000).map { try address("2001:db8:1:\(String($0, radix: 16))::1") }
        // The 48 bits may have 16 times 30, of which 30 are used.
        #expect(admitted(limiter, networks, at: start) == 15 * 30)
        let minute = start + 60 * Self.second
        #expect(admitted(limiter, networks + networks, at: minute) == 16 * 30)
        #expect(admitted(limiter, [try address("2001:db8:2::1")], at: minute) == 1)
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
        #expect(limiter.byteCount == 0)
    }

    /// The same rule in its other form, a leaky bucket (ITU-T I.371, annex A), with exact numbers and without a table.
    private struct Model {
        struct Bucket {
            var level: UInt64 = 0
            var time: UInt64 = 0
        }

        let interval: UInt64
        let capacity: UInt64
        var buckets: [UInt64: Bucket] = [:]

        init(_ rate: FailureRate, times factor: UInt64) {
            let (seconds, attoseconds) = rate.interval.components
            interval = (UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)) / factor
            capacity = interval * UInt64(rate.count) * factor
        }

        /// The level at a time, and the wait until one more failure fits in; nil if it does now.
        func look(_ key: UInt64, at now: UInt64) -> (level: UInt64, wait: UInt64?) {
            let bucket = buckets[key] ?? Bucket()
            let leaked = now - bucket.time
            let level = bucket.level > leaked ? bucket.level - leaked : 0
            return (level, level + interval > capacity ? level + interval - capacity : nil)
        }

        mutating func fill(_ key: UInt64, to level: UInt64, at now: UInt64) {
            buckets[key] = Bucket(level: level + interval, time: now)
        }
    }

    @Test(arguments: zip(1...24, ["30/min", "1/s", "7/s", "1/h", "100/h", "1000/min"].flatMap { [$0, $0, $0, $0] }))
    func `answers are those of an exact model`(seed: Int, rate: String) throws {
        let rate = try #require(FailureRate(rate))
        let limiter = FailureLimiter(rate)
        var (addresses, networks) = (Model(rate, times: 1), Model(rate, times: 16))
        var generator = SeededGenerator(seed: UInt64(seed))
        var now = start
        let interval = addresses.interval
        for step in 0..<4_000 {
            // Bursts, pauses around one interval, and now and then a pause in which much is made up for.
            switch Int.random(in: 0..<10, using: &generator) {
            case 0...5: break
            case 6...8: now += .random(in: 0...interval, using: &generator)
            default: now += .random(in: 0...interval * UInt64(rate.count), using: &generator)
            }
            let isIPv4 = Bool.random(using: &generator)
            // Few addresses, in two networks with 48 bits.
            let number = UInt64.random(in: 0..<(isIPv4 ? 3 : 40), using: &generator)
            let text =
                isIPv4
                ? "10.0.0.\(number)" : "2001:db8:\(number % 2):\(number)::\(Int.random(in: 1...9, using: &generator))"
            let key = isIPv4 ? number : 1_000 + number
            let found = addresses.look(key, at: now)
            let network: (level: UInt64, wait: UInt64?) = isIPv4 ? (0, nil) : networks.look(number % 2, at: now)
            let expected = [found.wait, network.wait].compactMap(\.self).max()
            if expected == nil {
                addresses.fill(key, to: found.level, at: now)
                if !isIPv4 { networks.fill(number % 2, to: network.level, at: now) }
            }
            let wait = limiter.noteFailure(from: try address(text), at: MonotonicTime(nanoseconds: now))
            try #require(
                wait == expected.map { .nanoseconds(Int64($0)) },
                "seed \(seed), rate \(rate), step \(step), \(text)")
        }
    }

    @Test func `a million addresses take no more memory, and do not have a guesser forgotten`() throws {
        let limiter = try limiter()
        var now = start
        let (guesser, neighbour) = (try address("192.0.2.1"), try address("2001:db8:7:7::1"))
        #expect(self.admitted(limiter, repeatElement(guesser, count: 100), at: now) == 30)
        #expect(self.admitted(limiter, repeatElement(neighbour, count: 5), at: now) == 5)
        var bytes: [Int] = []
        var admitted = 0
        for number in 0..<UInt64(1_000_000) {
            // All within ten seconds, a half of them in IPv6 networks of their own; each fails once.
            now = start + number * 10_000
            let address = address(numbered: (1 << 24) + number + (number % 2) << 32)
            if limiter.noteFailure(from: address, at: MonotonicTime(nanoseconds: now)) == nil { admitted += 1 }
            if number % 100_000 == 99_999 { bytes.append(limiter.byteCount) }
        }
        #expect(admitted == 1_000_000)
        #expect(Set(bytes) == [1_280 << 10])
        #expect(limiter.counts.evictions > 100_000, "the addresses did not fill the tables")
        // Ten seconds make up for five failures.
        #expect(self.admitted(limiter, repeatElement(guesser, count: 100), at: start + 10 * Self.second) == 5)
        #expect(self.admitted(limiter, repeatElement(neighbour, count: 100), at: start + 10 * Self.second) == 30)
    }

    @Test func `an entry is evicted only if all others of its set have more to make up for`() throws {
        let rate = FailureTable.Rate(try #require(FailureRate("60/min")), times: 1)
        var table = FailureTable(setCount: 1)
        // The key n has n failures, so that it is the n-th to be evicted.
        for key in 1...UInt64(FailureTable.ways) {
            for _ in 0..<key { table.count(key, rate, at: start) }
        }
        func isKnown(_ key: UInt64, _ table: FailureTable) -> Bool {
            // Known ones have to wait when the tolerance is none.
            let strict = FailureTable.Rate(FailureRate.once, times: 1)
            return table.wait(for: key, strict, at: start) != nil
        }
        for newcomer in 1...UInt64(FailureTable.ways) {
            table.count(100 + newcomer, rate, at: start)
            // A newcomer has one failure, and is the next to go.
            #expect((2...UInt64(FailureTable.ways)).allSatisfy { isKnown($0, table) })
            #expect(isKnown(100 + newcomer, table) && !isKnown(99 + newcomer, table) && !isKnown(1, table))
        }
        #expect(table.evictions == FailureTable.ways)
        // An entry whose time has passed is free: taking it evicts nobody.
        table.count(200, rate, at: start + 60 * Self.second)
        #expect(table.evictions == FailureTable.ways)
    }

    @Test func `many threads at once admit exactly as many failures as one`() async throws {
        let limiter = try limiter("1000/h")
        let addresses = (0..<8).map { address(numbered: $0) }
        let time = MonotonicTime(nanoseconds: start)
        let admitted = await withTaskGroup(of: Int.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    (0..<4_000).count { limiter.noteFailure(from: addresses[$0 % 8], at: time) == nil }
                }
            }
            return await group.reduce(0, +)
        }
        // Each address fails 2,000 times.
        #expect(admitted == 8 * 1_000)
        #expect(limiter.counts == .init(failures: 16_000, limited: 8_000, evictions: 0))
    }

    @Test func `SipHash is that of its authors`() {
        // Key and message are the bytes from 0 to 15; the result is the 17th of the reference implementation's vectors.
        let hash = SipHash(key: 0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908)
        #expect(hash.hash(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908) == 0x3f2a_cc7f_57c2_9bdb)
    }
}

extension FailureRate {
    fileprivate static let once = FailureRate("1/h") ?? .standard
}
