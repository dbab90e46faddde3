import Foundation
import Synchronization
import System
import Testing

@testable import EventLoop

/// Runs a loop on a thread of its own while `body` runs, and stops it afterwards.
func withLoop<Result: Sendable>(_ body: (EventLoop) async throws -> Result) async throws -> Result {
    let loop = try EventLoop()
    Thread { loop.run() }.start()
    defer { loop.stop() }
    return try await body(loop)
}

extension EventLoop {
    /// Runs a task on this loop and waits for its end.
    func perform<Result: Sendable>(_ body: @escaping @Sendable () async throws -> Result) async throws -> Result {
        try await Task(executorPreference: self) { try await body() }.value
    }
}

/// Two connected stream sockets that do not block.
func socketPair() throws -> (Int32, Int32) {
    let listener = try Listener(binding: try SocketAddress.resolve(host: "127.0.0.1", port: 0)[0])
    let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    let status = unsafe listener.address.withPointer { unsafe connect(client, $0, $1) }
    guard status == 0 else { throw SystemError.last("connect") }
    let server = accept(listener.descriptor.number, nil, nil)
    guard server >= 0 else { throw SystemError.last("accept") }
    for descriptor in [client, server] { _ = fcntl(descriptor, F_SETFL, O_NONBLOCK) }
    return (server, client)
}

/// Waits until bytes or the end of the input have come to a socket.
///
/// The call that sends them may return before, as a busy kernel leaves the delivery to a thread of its own (ksoftirqd).
func awaitArrival(at descriptor: Int32) {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    while poll(&entry, 1, -1) != 1 {}
}

/// Sends a byte from the second socket of a pair to the first, and waits for its arrival.
func sendByte(through pair: (Int32, Int32)) {
    _ = write(pair.1, "x", 1)
    awaitArrival(at: pair.0)
}

/// Numbers in the order in which tasks noted them, on any thread.
final class Notes: Sendable {
    private let notes = Mutex<[Int]>([])

    func add(_ number: Int) {
        notes.withLock { $0.append(number) }
    }

    var all: [Int] { notes.withLock { $0 } }
}

/// A stream and what its waits came to; on the loop's thread.
final class HandlerRecorder: ReadinessHandler, @unchecked Sendable {
    private let stream: TCPStream
    private let loop: EventLoop
    private(set) var reasons: [WakeReason] = []

    init(_ descriptor: Int32, on loop: EventLoop) throws {
        stream = try TCPStream(FileDescriptor(owning: descriptor), on: loop)
        self.loop = loop
    }

    func wake(_ reason: WakeReason) {
        #expect(loop.isCurrent)
        reasons.append(reason)
    }

    func resume() {}

    func wait(until deadline: MonotonicTime, _ traits: WaitTraits = .idle) -> WakeReason? {
        stream.waitUntilReadable(until: deadline, traits, calling: self)
    }

    func receive() {
        var buffer: [UInt8] = []
        _ = try? stream.receive(into: &buffer, room: 16)
    }
}
