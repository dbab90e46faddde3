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

    /// The bytes that are counted for a new connection after something was done with it on a loop.
    private func bytesHeld(after act: @escaping @Sendable (inout Connection, LoopContext) -> Void) async throws -> Int {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let keys = KeyRingFile(path: "", credentials: nil, directory: "")
        let context = try LoopContext(
            settings: Settings(), store: MemoryStore(MemoryDisk(), options: StoreOptions(keyRing: keys)), answers: nil,
            access: AccessResources(Settings()), accessLog: nil, bufferBudget: BufferBudget(limit: 1 << 20),
            totalCount: ConnectionCount(limit: 100), failures: RateLimitedLog(logger), logger: logger)
        let loop = context.loop
        Thread { loop.run() }.start()
        defer { loop.stop() }
        var ends: [Int32] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw SystemError.last("socketpair")
        }
        defer { close(ends[1]) }
        let descriptor = ends[0]
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
