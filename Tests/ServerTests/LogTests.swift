import Foundation
import Glibc
import Logging
import Settings
import Synchronization
import System
import TestSupport
import Testing

@testable import Server

@Suite struct LogLineTests {
    private func line(_ message: String, _ fields: [(name: String, value: String)] = []) -> LogLine {
        LogLine(unixMilliseconds: 1_795_226_584_007, level: .notice, message: message, fields: fields)
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

@Suite struct LineWriterTests {
    @Test func `lines that are not being written yet go to a new destination`() throws {
        let folder = TemporaryDirectory()
        let path = { (name: String) in "\(folder.path)/\(name)" }
        // The writer blocks when the pipe is full, until the test reads from it.
        #expect(mkfifo(path("pipe"), 0o600) == 0)
        let reader = open(path("pipe"), O_RDONLY | O_NONBLOCK)
        #expect(reader >= 0)
        defer { close(reader) }
        let failures = RateLimitedLog(Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let writer = LineWriter(try LineWriter.Destination(path("pipe")), failures: failures)
        let filling = [UInt8](repeating: UInt8(ascii: "x"), count: 1 << 20)
        writer.append(filling)
        // The writer blocks with the lines that it has taken; the lines that follow stay in its queue.
        var piped = read(1, from: reader)
        writer.append(Array("before\n".utf8))
        writer.change(to: try LineWriter.Destination(path("unused")))
        writer.change(to: try LineWriter.Destination(path("second")))
        writer.append(Array("after\n".utf8))
        // Reads to the end of the pipe, which comes when the writer closes it after the change.
        while true {
            let count = read(1 << 16, from: reader)
            if count == 0 { break }
            piped += count
        }
        try #require(piped == filling.count)
        writer.close()
        #expect(try text(path("unused")).isEmpty)
        #expect(try text(path("second")) == "before\nafter\n")
    }

    @Test func `a line for which there is no room is reported before anything is written again`() throws {
        let lines = LogLines()
        let writer = LineWriter(try LineWriter.Destination(""), failures: RateLimitedLog(lines.logger))
        writer.append([UInt8](repeating: UInt8(ascii: "x"), count: 5 << 20))
        while lines.texts.withLock(\.isEmpty) { usleep(1_000) }
        #expect(lines.texts.withLock(\.self).first?.hasPrefix("lines of the access log are dropped") == true)
    }

    private func text(_ path: String) throws -> String { try String(contentsOfFile: path, encoding: .utf8) }

    /// Waits for bytes, and returns how many were read; 0 at the end.
    private func read(_ most: Int, from descriptor: Int32) -> Int {
        var piece = [UInt8](repeating: 0, count: most)
        while true {
            let count = Glibc.read(descriptor, &piece, most)
            if count >= 0 { return count }
            usleep(1_000)
        }
    }
}
