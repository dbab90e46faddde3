import TestSupport
import Testing

@testable import Audit

@Suite struct RepeatedEventsTests {
    private func refusal(_ reason: String = "unknown", from address: String = "192.0.2.1") -> AuditEvent {
        AuditEvent(.authenticate, .denied(reason), by: .none, address: address)
    }

    /// The refusals of a log from the reason on, without quotation marks.
    private func refusals(_ lines: [String]) -> [String] {
        lines.filter { $0.contains("authenticate") }.map { line in
            let start = line.firstRange(of: #""reason":""#)?.upperBound ?? line.startIndex
            let end = line.firstRange(of: #","mac""#)?.lowerBound ?? line.endIndex
            return String(line[start..<end].filter { $0 != "\"" })
        }
    }

    @Test func `the events that a client repeats become one line a minute, with their count`() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        /// The refusals of a moment, recorded as a loop does it.
        func refuse(_ events: AuditEvent...) throws {
            for event in events where !log.isCounted(event) { try log.append([event]) }
        }
        func added() -> [String] { refusals(fixture.lines()) }
        let other = refusal(from: "192.0.2.2")
        for _ in 0..<100 { try refuse(refusal(), refusal("scope"), refusal("scope")) }
        try refuse(other)
        var expected = ["unknown", "scope"].map { "\($0),actor:none,address:192.0.2.1" }
        expected.append("unknown,actor:none,address:192.0.2.2")
        #expect(added() == expected)
        fixture.pass(seconds: 59)
        log.keepUp()
        #expect(added() == expected)
        fixture.pass(seconds: 1)
        log.keepUp()
        expected += ["scope,actor:none,address:192.0.2.1,count:199", "unknown,actor:none,address:192.0.2.1,count:99"]
        #expect(added().sorted() == expected.sorted())
        // Whoever goes on is counted from the start of the next minute; who stopped is forgotten.
        try refuse(refusal(), refusal(), other)
        expected.append("unknown,actor:none,address:192.0.2.2")
        #expect(added().sorted() == expected.sorted())
        // A clock that is set back delays no number.
        fixture.pass(seconds: -3_600)
        log.keepUp()
        expected.append("unknown,actor:none,address:192.0.2.1,count:2")
        #expect(added().sorted() == expected.sorted())
        try refuse(refusal())
        log.close()
        expected.append("unknown,actor:none,address:192.0.2.1,count:1")
        #expect(added().sorted() == expected.sorted())
        #expect(try fixture.verify().isSound)
    }

    @Test func `the events of more clients than are told apart are added up by kind`() {
        var repeated = RepeatedEvents()
        let clients = 3 * RepeatedEvents.limit
        var lines = 0
        for number in 0..<clients where !repeated.count(refusal(from: "client \(number)"), at: 0) { lines += 1 }
        // One more for the first of the rest.
        #expect(lines == RepeatedEvents.limit + 1)
        let sums = repeated.take(at: 60_000_000)
        #expect(sums.map(\.count) == [UInt64(clients - lines)] && sums.map(\.address) == [nil])
        // The places are free again.
        let isCounted = repeated.count(refusal(from: "another"), at: 60_000_000)
        let rest = repeated.take(at: nil)
        #expect(!isCounted && rest.isEmpty)
    }
}
