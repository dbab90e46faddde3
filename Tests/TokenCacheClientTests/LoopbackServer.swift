import Foundation

@testable import TokenCacheClient

/// An HTTP server on 127.0.0.1 that sends whatever bytes it is told to, with pauses.
final class LoopbackServer: Sendable {
    enum Step: Sendable {
        case send(String)
        case wait(milliseconds: UInt32)
        /// A byte again and again, while the condition holds.
        case drip(@Sendable () -> Bool)
        /// Reads the connection's next request, after which it is closed without an answer.
        case keepUntilNextRequest
    }

    private let descriptor: Int32
    let port: UInt16
    private let received = Locked<[String]>([])
    private let isEnded = Locked(false)
    private let script: @Sendable (String, Int) -> [Step]

    /// The script gets each request, head and body, with its number from 1; afterwards the connection is closed.
    init(_ script: @escaping @Sendable (String, Int) -> [Step]) throws {
        self.script = script
        #if canImport(Darwin)
        descriptor = socket(AF_INET, SOCK_STREAM, 0)
        #else
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        #endif
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = descriptor
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) | listen(descriptor, 64) | getsockname(descriptor, $0, &length)
            }
        }
        guard result == 0 else { throw TokenCacheError.storage(operation: "listen", code: Int(errno)) }
        port = UInt16(bigEndian: address.sin_port)
        Thread.detachNewThread { [weak self] in
            while true {
                let connection = accept(descriptor, nil, nil)
                guard connection >= 0, let self, !self.isEnded.current else {
                    if connection >= 0 { close(connection) }
                    close(descriptor)
                    return
                }
                Thread.detachNewThread { self.serve(connection) }
            }
        }
    }

    deinit {
        end()
    }

    /// From now on, connections are refused.
    func end() {
        let wasEnded = isEnded.withLock { isEnded in
            defer { isEnded = true }
            return isEnded
        }
        // The accepting thread wakes up and closes it.
        if !wasEnded { shutdown(descriptor, Int32(SHUT_RDWR)) }
    }

    var requests: [String] { received.current }

    func url(_ path: String = "/token.php") throws -> URL {
        guard let url = URL(string: "http://127.0.0.1:\(port)\(path)") else { throw TokenCacheError.invalidURL }
        return url
    }

    private func serve(_ connection: Int32) {
        defer { close(connection) }
        let request = Self.request(connection)
        guard !request.isEmpty else { return }
        let number = received.withLock { received in
            received.append(request)
            return received.count
        }
        for step in script(request, number) {
            switch step {
            case .send(let text):
                guard send(connection, text, text.utf8.count, Int32(MSG_NOSIGNAL)) == text.utf8.count else { return }
            case .wait(let milliseconds): usleep(milliseconds * 1_000)
            case .drip(let condition):
                while condition(), send(connection, "x", 1, Int32(MSG_NOSIGNAL)) == 1 { usleep(10_000) }
            case .keepUntilNextRequest: _ = Self.request(connection)
            }
        }
        // What the client sent late would otherwise turn the end into a reset.
        shutdown(connection, Int32(SHUT_WR))
        var rest = [UInt8](repeating: 0, count: 1_024)
        while read(connection, &rest, rest.count) > 0 {}
    }

    private static func request(_ connection: Int32) -> String {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16_384)
        while true {
            let text = String(decoding: bytes, as: UTF8.self)
            if let end = text.range(of: "\r\n\r\n") {
                let head = text[..<end.lowerBound].lowercased()
                let length = head.range(of: "content-length: ").flatMap {
                    Int(head[$0.upperBound...].prefix { $0.isNumber })
                }
                if text[end.upperBound...].utf8.count >= length ?? 0 { return text }
            }
            let count = read(connection, &buffer, buffer.count)
            guard count > 0 else { return "" }
            bytes.append(contentsOf: buffer[..<count])
        }
    }

    /// An answer as bytes.
    static func answer(
        _ body: String, status: String = "200 OK", fields: String = "", length: Int? = nil, connection: String = "close"
    ) -> Step {
        .send(
            "HTTP/1.1 \(status)\r\nContent-Type: application/json\r\n\(fields)"
                + "Content-Length: \(length ?? body.utf8.count)\r\nConnection: \(connection)\r\n\r\n\(body)")
    }
}
