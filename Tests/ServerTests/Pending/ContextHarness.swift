import EventLoop
import Foundation
import Glibc
import Logging
import Settings
import Synchronization
import System
import Testing

@testable import Server

/// A context on a thread of its own, over a store whose outcomes the test gives.
final class ContextHarness {
    let context: LoopContext
    let handle: RemoteStoreHandle
    let budget: BufferBudget
    private let listener: ClientListener
    private let peer: SocketAddress

    init(timeLimit: Duration? = nil, budget limit: Int = 1 << 20) throws {
        let store = RemoteStore(timeLimit: timeLimit)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        budget = BufferBudget(limit: limit)
        context = try LoopContext(
            settings: Self.patient, store: store, answers: nil,
            access: AccessResources(Settings()), accessLog: nil,
            bufferBudget: budget, totalCount: ConnectionCount(limit: 100), failures: RateLimitedLog(logger, .error),
            logger: logger
        )
        handle = try store.opened
        peer = try SocketAddress.resolve(host: "127.0.0.1", port: 0)[0]
        listener = ClientListener(
            listener: try Listener(binding: peer), requiresProxyProtocol: false, tls: nil, clientAuthentication: .none)
        let loop = context.loop
        Thread { loop.run() }.start()
    }

    deinit {
        context.loop.stop()
    }

    /// Settings with which no connection ends because a busy machine held it up.
    private static var patient: Settings {
        var settings = Settings()
        settings.timeouts.head = .seconds(3_600)
        settings.timeouts.body = .seconds(3_600)
        settings.timeouts.idle = .seconds(3_600)
        return settings
    }

    /// Opens a connection that the context serves.
    func connect() throws -> TestClient {
        var ends: [Int32] = [0, 0]
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw SystemError.last("socketpair") }
        let (descriptor, context, peer, listener) = (ends[0], context, peer, listener)
        context.expectConnection()
        context.loop.execute { context.serve(descriptor, from: peer, through: listener, exceedsLimit: false) }
        return TestClient(ends[1])
    }

    /// Waits until the store was asked for all of these, in this order.
    func waitUntilAsked(_ expected: String...) async throws {
        try await wait { self.handle.asked == expected }
        #expect(handle.asked == expected)
    }

    /// Waits until the store was asked so many times.
    func waitUntilAskedFor(_ count: Int) async throws {
        try await wait { self.handle.asked.count >= count }
        #expect(handle.asked.count == count)
    }

    /// Waits until no connection is open.
    func waitUntilClosed() async throws {
        try await wait { self.context.connectionCount.load(ordering: .relaxed) == 0 }
        #expect(context.connectionCount.load(ordering: .relaxed) == 0)
    }

    private func wait(_ condition: () -> Bool) async throws {
        // Looks are counted, not seconds: on a busy machine there may be many seconds between two of them.
        for _ in 0..<50_000 where !condition() { try await Task.sleep(for: .milliseconds(2)) }
    }
}

/// The other end of a connection.
final class TestClient {
    private var descriptor: Int32
    private var received: [UInt8] = []

    struct Answer: Equatable {
        let status: Int
        let body: String
        let closes: Bool
    }

    init(_ descriptor: Int32) {
        self.descriptor = descriptor
    }

    deinit { leave() }

    /// Closes the connection in both directions.
    func leave() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }

    /// Tells the server that nothing more will come.
    func finishSending() {
        shutdown(descriptor, Int32(SHUT_WR))
    }

    func send(_ text: String) {
        let bytes = Array(text.utf8)
        #expect(Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count)
    }

    func get(_ id: String, closing: Bool = false) {
        send("GET /token?unique_id=\(id) HTTP/1.1\r\nHost: a\r\n\(closing ? "Connection: close\r\n" : "")\r\n")
    }

    func post(_ id: String, closing: Bool = false) {
        let body = "unique_id=\(id)&token_info=1"
        send(
            """
            POST /token HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
            Content-Length: \(body.utf8.count)\r\n\(closing ? "Connection: close\r\n" : "")\r\n\(body)
            """
        )
    }

    /// The next answer.
    func answer() async throws -> Answer {
        while true {
            if let answer = takeAnswer() { return answer }
            guard try await receive() > 0 else { throw SystemError(call: "recv", code: 0) }
        }
    }

    /// Waits for the server to close the connection, which must not be by a reset.
    func end() async throws {
        #expect(try await receive() == 0)
        #expect(received.isEmpty)
    }

    /// Whether there is nothing to be read for now.
    var isSilent: Bool {
        get async throws {
            try await Task.sleep(for: .milliseconds(30))
            var byte: UInt8 = 0
            return recv(descriptor, &byte, 1, Int32(MSG_PEEK)) < 0 && errno == EAGAIN
        }
    }

    private func receive() async throws -> Int {
        var room = [UInt8](repeating: 0, count: 1 << 16)
        for _ in 0..<50_000 {
            let count = recv(descriptor, &room, room.count, 0)
            if count >= 0 {
                received += room[..<count]
                return count
            }
            guard errno == EAGAIN else { throw SystemError.last("recv") }
            try await Task.sleep(for: .milliseconds(2))
        }
        throw SystemError(call: "recv", code: ETIMEDOUT)
    }

    private func takeAnswer() -> Answer? {
        let text = String(decoding: received, as: UTF8.self)
        guard let headEnd = text.range(of: "\r\n\r\n") else { return nil }
        let head = text[..<headEnd.lowerBound].split(separator: "\r\n")
        let length = head.first { $0.hasPrefix("Content-Length: ") }.flatMap { Int($0.dropFirst(16)) } ?? 0
        let headLength = text[..<headEnd.upperBound].utf8.count
        guard received.count >= headLength + length else { return nil }
        let body = String(decoding: received[headLength..<(headLength + length)], as: UTF8.self)
        received.removeFirst(headLength + length)
        return Answer(
            status: Int(head[0].split(separator: " ")[1]) ?? 0, body: body, closes: head.contains("Connection: close")
        )
    }
}
