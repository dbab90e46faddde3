import EventLoop
import Foundation
import HTTP
import Logging
import Settings
import StoreConformance
import System
import Testing
import TokenService
import TokenStore

@testable import Server

/// The buffers that a connection holds, and gives away before it waits.
@Suite struct ConnectionBufferTests {
    @Test(arguments: [false, true])
    func `an idle connection holds no buffer`(hasFreedInput: Bool) async throws {
        let bytes = try await bytesHeld { connection, context in
            connection.takeBuffers(of: context)
            // As after a large body whose answer the client was slow to read.
            if hasFreedInput { connection.reader.releaseRoom() }
            connection.releaseBuffers(to: context)
        }
        #expect(bytes == 0)
    }

    @Test func `what is still to be sent is kept`() async throws {
        let bytes = try await bytesHeld { connection, context in
            connection.takeBuffers(of: context)
            connection.reader.releaseRoom()
            connection.output.append(1)
            connection.releaseBuffers(to: context)
        }
        #expect(bytes >= BufferPool.bufferSize)
    }

    @Test func `requests that wait for their turn need room`() async throws {
        // More than one turn answers.
        let answers = try await answersWithoutRoom(to: String(repeating: Self.get, count: 100))
        #expect(answers.count > 30 && answers.count < 100)
        #expect(answers.dropLast().allSatisfy { $0.contains("50002") } && answers.last?.contains("50300") == true)
    }

    @Test func `a write with requests behind it needs room`() async throws {
        let body = "unique_id=a&token_info=1"
        let post = """
            POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
            Content-Length: \(body.utf8.count)\r\n\r\n\(body)
            """
        let last = Self.get.replacing("\r\n\r\n", with: "\r\nConnection: close\r\n\r\n")
        let answers = try await answersWithoutRoom(to: post + Self.get + last)
        #expect(answers.map { $0.contains("50001") } == [true, false, false])
        #expect(answers.dropFirst().allSatisfy { $0.contains("50002") })
    }

    private static let get = "GET /token?unique_id=nobody HTTP/1.1\r\nHost: localhost\r\n\r\n"

    /// The answers of a server all of whose `limits.buffers` is in use.
    private func answersWithoutRoom(to requests: String) async throws -> [Substring] {
        let budget = BufferBudget(limit: 1 << 20)
        #expect(budget.take(1 << 20))
        let context = try context(budget)
        let loop = context.loop
        Thread { loop.run() }.start()
        defer { loop.stop() }
        let listener = ClientListener(
            listener: try Listener(binding: try SocketAddress.resolve(host: "127.0.0.1", port: 0)[0]),
            requiresProxyProtocol: false, tls: nil, clientAuthentication: .none)
        let (own, peer) = try pair()
        context.expectConnection()
        try FileHandle(fileDescriptor: peer).write(contentsOf: Data(requests.utf8))
        await Task(executorPreference: loop) {
            let stream = try? TCPStream(FileDescriptor(owning: own), on: loop)
            guard let stream else { return }
            let client = context.connectionSettings.https.peer(address: IPAddress("127.0.0.1"), port: 0)
            ConnectionDriver(
                Connection(stream, from: client, through: 0, on: context), isRefused: false, on: context
            ).start(through: listener)
        }.value
        // Until the server closes the connection.
        let received = try FileHandle(fileDescriptor: peer, closeOnDealloc: true).readToEnd() ?? Data()
        return String(decoding: received, as: UTF8.self).split(separator: "HTTP/1.1 ")
    }

    private func context(_ budget: BufferBudget) throws -> LoopContext {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let keys = KeyRingFile(path: "", credentials: nil, directory: "")
        return try LoopContext(
            settings: Settings(), store: MemoryStore(MemoryDisk(), options: StoreOptions(keyRing: keys)), answers: nil,
            access: AccessResources(Settings()), accessLog: nil, bufferBudget: budget,
            totalCount: ConnectionCount(limit: 100), failures: RateLimitedLog(logger), logger: logger)
    }

    /// Two connected sockets.
    private func pair() throws -> (Int32, Int32) {
        var ends: [Int32] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw SystemError.last("socketpair")
        }
        return (ends[0], ends[1])
    }

    /// The bytes that are counted for a new connection after something was done with it on a loop.
    private func bytesHeld(after act: @escaping @Sendable (inout Connection, LoopContext) -> Void) async throws -> Int {
        let context = try context(BufferBudget(limit: 1 << 20))
        let loop = context.loop
        Thread { loop.run() }.start()
        defer { loop.stop() }
        let (descriptor, other) = try pair()
        defer { close(other) }
        let task = Task(executorPreference: context.loop) {
            let stream = try TCPStream(FileDescriptor(owning: descriptor), on: context.loop)
            let peer = context.connectionSettings.https.peer(address: nil, port: 0)
            var connection = Connection(stream, from: peer, through: 0, on: context)
            act(&connection, context)
            return connection.waitingBytes
        }
        return try await task.value
    }
}
