import Logging
import Settings
import Testing

@testable import Server

struct RecentLogTests {
    @Test func `the last hundred lines are kept, and all are counted`() {
        let log = RecentLog()
        for number in 1...250 { log.add(unixMilliseconds: Int64(number), level: "warning", text: "line \(number)") }
        #expect(log.count == 250)
        #expect(log.lines.map(\.number) == Array(151...250))
        #expect(log.lines.last == .init(number: 250, unixMilliseconds: 250, level: "warning", text: "line 250"))
    }

    @Test(arguments: [
        (String(repeating: "a", count: 1_000), String(repeating: "a", count: 1_000)),
        (String(repeating: "a", count: 1_001), String(repeating: "a", count: 997) + "…"),
        // Two bytes each: the cut is not in the middle of one.
        (String(repeating: "é", count: 600), String(repeating: "é", count: 498) + "…"),
    ])
    func `a long line is cut between two characters`(text: String, kept: String) {
        let log = RecentLog()
        log.add(unixMilliseconds: 0, level: "error", text: text)
        #expect(log.lines.map(\.text) == [kept])
    }

    @Test func `lines below warning are not kept, and lines stay one line each`() {
        let output = LogOutput(level: .info, format: .json)
        let logger = output.logger
        logger.info("nothing")
        logger.warning("a\nb", metadata: ["name": "value"])
        logger.critical("c")
        #expect(output.recent.lines.map(\.text) == ["a b name=value", "c"])
        #expect(output.recent.lines.map(\.level) == ["warning", "critical"])
    }
}
