import Foundation
import Glibc
import Logging
import TestSupport
import Testing

@testable import Server

@Suite struct LineWriterTests {
    @Test func `lines that are not being written yet go to a new destination`() throws {
        let folder = try TemporaryDirectory()
        let path = { (name: String) in "\(folder.path)/\(name)" }
        // The writer blocks when the pipe is full, until the test reads from it.
        #expect(mkfifo(path("pipe"), 0o600) == 0)
        let reader = open(path("pipe"), O_RDONLY | O_NONBLOCK)
        #expect(reader >= 0)
        defer { close(reader) }
        let failures = RateLimitedLog(Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, .error)
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
