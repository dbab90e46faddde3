import EventLoop
import Glibc
import HTTP
import System
import Testing
import TokenService

@testable import Server

/// The buffers that a connection holds, and gives away before it waits.
@Suite struct ConnectionBufferTests {
    @Test(arguments: [false, true])
    func `an idle connection holds no buffer`(hasFreedInput: Bool) async throws {
        let harness = try ContextHarness()
        let bytes = try await bytesHeld(by: harness.context) { connection, context in
            connection.takeBuffers(of: context)
            // As after a large body whose answer the client was slow to read.
            if hasFreedInput { connection.reader.releaseRoom() }
            connection.releaseBuffers(to: context)
        }
        #expect(bytes == 0)
    }

    @Test func `what is still to be sent is kept`() async throws {
        let harness = try ContextHarness()
        let bytes = try await bytesHeld(by: harness.context) { connection, context in
            connection.takeBuffers(of: context)
            connection.reader.releaseRoom()
            connection.output.append(1)
            connection.releaseBuffers(to: context)
        }
        #expect(bytes >= BufferPool.bufferSize)
    }

    /// The bytes that are counted for a new connection after something was done with it on the context's loop.
    private func bytesHeld(
        by context: LoopContext, after act: @escaping @Sendable (inout Connection, LoopContext) -> Void
    ) async throws -> Int {
        var ends: [Int32] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw SystemError.last("socketpair")
        }
        defer { close(ends[1]) }
        let descriptor = ends[0]
        let task = Task(executorPreference: context.loop) {
            let stream = try TCPStream(FileDescriptor(owning: descriptor), on: context.loop)
            let peer = context.connectionSettings.https.peer(address: nil, isTLS: false, port: 0)
            var connection = Connection(stream, from: peer, through: 0, on: context)
            act(&connection, context)
            return connection.waitingBytes
        }
        return try await task.value
    }
}
