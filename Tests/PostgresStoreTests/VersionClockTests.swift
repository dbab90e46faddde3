#if PostgreSQL
import Synchronization
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct VersionClockTests {
    @Test func `versions grow although the time stands still, and are never given twice`() async {
        let clock = VersionClock(process: 5) { 1_000 }
        let versions = await withTaskGroup { group in
            for _ in 0..<8 { group.addTask { (0..<1_000).map { _ in clock.next() } } }
            return await group.reduce(into: []) { $0.append($1) }
        }
        for some in versions { #expect(some == some.sorted()) }
        #expect(Set(versions.joined()).count == 8_000)
    }

    @Test func `a version is later than each that was seen, though the clock is behind`() {
        let clock = VersionClock(process: 5) { 1_000 }
        let other = VersionClock(process: 9) { 60_000_000 }
        let seen = other.next()
        clock.note(seen)
        #expect(clock.next() > seen)
    }

    @Test func `a version far in the future is not followed`() {
        let clock = VersionClock(process: 5) { 1_000 }
        clock.note(TokenVersion(rawValue: .max))
        #expect(clock.next() == TokenVersion(rawValue: 1_000 << VersionClock.processBits | 5))
    }
}
#endif
