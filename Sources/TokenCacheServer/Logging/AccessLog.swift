internal import Dispatch
internal import Foundation
internal import Glibc
internal import HTTP
internal import Synchronization

/// One line a request on standard output, written by a thread of its own so that a slow reader of it stops no loop.
///
/// Any thread. What clients may fill with anything does not get in: of the target only the known paths, and of the
/// methods only the registered ones; the rest is `-`.
final class AccessLog: Sendable {
    struct Entry {
        let client: String
        let method: String
        /// Nil for a path that the server does not know.
        let path: String?
        let minorVersion: UInt8
        let status: UInt16
        /// Bytes of the answer's body.
        let bytes: Int
        /// From the request's last byte to the answer.
        let microseconds: UInt64
        let unixTime: Int64
        /// Empty where requests have none.
        let requestID: String
    }

    private struct Buffer {
        var lines: [UInt8] = []
        var dropped = 0
        var isClosed = false
    }

    /// Lines that wait to be written are dropped beyond this many bytes, and counted.
    private static let limit = 4 << 20

    private let format: AccessLogFormat
    private let buffer = Mutex(Buffer())
    private let available = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)

    /// Nil for `off`.
    init?(_ format: AccessLogFormat) {
        guard format != .off else { return nil }
        self.format = format
        Thread { [self] in
            Thread.current.name = "access log"
            run()
            finished.signal()
        }.start()
    }

    func write(_ entry: Entry) {
        let line = Array(text(entry).utf8)
        let isFirst = buffer.withLock { buffer in
            guard buffer.lines.count + line.count <= Self.limit else {
                buffer.dropped += 1
                return false
            }
            buffer.lines.append(contentsOf: line)
            return buffer.lines.count == line.count
        }
        if isFirst { available.signal() }
    }

    /// Writes what is left, unless its reader does not take it: a stop does not wait for that.
    func close() {
        buffer.withLock { $0.isClosed = true }
        available.signal()
        _ = finished.wait(timeout: .now() + 1)
    }

    private func run() {
        while true {
            available.wait()
            let (lines, dropped, isClosed) = buffer.withLock { buffer in
                defer {
                    buffer.lines = []
                    buffer.dropped = 0
                }
                return (buffer.lines, buffer.dropped, buffer.isClosed)
            }
            Self.writeAll(lines)
            if dropped > 0 { Self.writeAll(Array("access log: \(dropped) lines dropped, reader too slow\n".utf8)) }
            if isClosed { return }
        }
    }

    private static func writeAll(_ bytes: [UInt8]) {
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                unsafe Glibc.write(STDOUT_FILENO, bytes.baseAddress?.advanced(by: written), bytes.count - written)
            }
            if count < 0 && errno == EINTR { continue }
            // Nobody reads any more: requests are answered all the same.
            guard count > 0 else { return }
            written += count
        }
    }

    // MARK: - Format

    private static let methods: Set<String> = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ]

    private func text(_ entry: Entry) -> String {
        let method = Self.methods.contains(entry.method) ? entry.method : "-"
        let path = entry.path ?? "-"
        let hasID = !entry.requestID.isEmpty
        switch format {
        case .json:
            return """
                {"time":"\(LogTime.text(entry.unixTime))","client":"\(entry.client)","method":"\(method)",\
                "path":"\(path)","protocol":"HTTP/1.\(entry.minorVersion)","status":\(entry.status),\
                "bytes":\(entry.bytes),"microseconds":\(entry.microseconds)\
                \(hasID ? #","request_id":"\#(entry.requestID)""# : "")}\n
                """
        case .combined, .off:
            return """
                \(entry.client) - - [\(Self.commonTime(entry.unixTime))] "\(method) \(path) \
                HTTP/1.\(entry.minorVersion)" \(entry.status) \(entry.bytes) "-" "-" \(entry.microseconds)\
                \(hasID ? " " : "")\(entry.requestID)\n
                """
        }
    }

    /// As in `21/Nov/2026:02:03:04 +0000`.
    private static func commonTime(_ unixTime: Int64) -> String {
        let date = HTTPDate.date(daysSince1970: Int(unixTime / 86_400))
        let day = "\(HTTPDate.twoDigits(Int64(date.day)))/\(HTTPDate.months[date.month - 1])/\(date.year)"
        return "\(day):\(LogTime.clock(unixTime)) +0000"
    }
}
