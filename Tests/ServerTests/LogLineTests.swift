import Foundation
import Settings
import Testing

@testable import Server

@Suite struct LogLineTests {
    private func line(_ message: String, _ fields: [(name: String, value: String)] = []) -> LogLine {
        LogLine(unixMilliseconds: 1_795_226_584_007, level: "notice", message: message, fields: fields)
    }

    @Test("text has the time in UTC, the level, the message and the fields")
    func text() {
        #expect(line("it \"serves\"").text(.text) == "2026-11-21T02:03:04.007Z notice: it \"serves\"\n")
        #expect(line("a", [("b", "c")]).text(.text) == "2026-11-21T02:03:04.007Z notice: a b=c\n")
    }

    @Test(
        "whatever a message holds, text stays one line and JSON one object",
        arguments: ["plain", "two\nlines\r\n", "\"quoted\" \\ /", "\u{0}\u{7}\u{1b}[31m\t", "é 🙂 \u{2028}\u{85}", ""]
    )
    func oneLine(message: String) throws {
        let text = line(message).text(.text)
        #expect(text.hasSuffix("\n"))
        #expect(text.dropLast().unicodeScalars.allSatisfy { $0.value >= 0x20 && $0 != "\u{85}" && $0 != "\u{2028}" })
        let json = line(message, [("request_id", message)]).text(.json)
        #expect(json.split(separator: "\n").count == 1)
        let object = try JSONDecoder().decode([String: String].self, from: Data(json.utf8))
        #expect(
            object == [
                "time": "2026-11-21T02:03:04.007Z", "level": "notice", "message": message, "request_id": message,
            ])
    }
}
