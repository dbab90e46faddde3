import COpenSSL
import Cryptography
import Foundation
import Synchronization
import System
import Testing

@testable import EventLoop

extension TLSContext {
    static func withOneCertificate() throws -> TLSContext {
        let certificates = try Certificates()
        return try withExtendedLifetime(certificates) {
            try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        }
    }
}

extension TLSFiles {
    init(standard: Pair, others: [Pair] = [], clientAuthorities: String? = nil) {
        self.init([standard] + others, clientAuthorities: clientAuthorities)
    }
}

/// A server's answer to one client: the handshake, then every byte back until the client has had enough.
///
/// - Parameter note: Gets the client's certificate after the handshake.
func serveEcho(
    _ descriptor: Int32, _ context: TLSContext, clients: TLSClientAuthentication = .requiredByAuthorities,
    on loop: EventLoop, handshakeTime: Duration = .seconds(3_600), budget: BufferBudget = BufferBudget(limit: 1 << 20),
    note: @escaping @Sendable (ClientCertificate?) -> Void = { _ in }
) async throws -> String? {
    try await loop.perform {
        let stream = try await acceptTLS(
            descriptor, context, clients: clients, until: .now + Nanoseconds(handshakeTime), budget, on: loop)
        note(stream.clientCertificate)
        let version = stream.tlsVersion
        var buffer: [UInt8] = []
        while try await receive(from: stream, into: &buffer) {
            try await send(buffer, to: stream)
            buffer.removeAll(keepingCapacity: true)
        }
        return version
    }
}

/// A stream after its handshake.
func acceptTLS(
    _ descriptor: Int32, _ context: TLSContext, clients: TLSClientAuthentication = .none,
    until deadline: MonotonicTime = .never, _ budget: BufferBudget = BufferBudget(limit: 1 << 20), on loop: EventLoop
) async throws -> TCPStream {
    var stream = try TCPStream(FileDescriptor(owning: descriptor), on: loop)
    try await stream.startTLS(context, clients: clients, until: deadline, among: TLSHandshakes(budget))
    return stream
}

/// False at the end of the input.
func receive(from stream: borrowing TCPStream, into buffer: inout [UInt8]) async throws -> Bool {
    while true {
        switch try stream.receive(into: &buffer, room: 16 << 10) {
        case .received: return true
        case .endOfInput: return false
        case .wouldBlock:
            let mayBeReadable = stream.mayBeReadable
            #expect(!mayBeReadable)
            let reason = await stream.waitUntilReadable(until: .never, isIdle: false)
            try #require(reason == .ready)
        }
    }
}

func send(_ bytes: [UInt8], to stream: borrowing TCPStream) async throws {
    var sent = 0
    while sent < bytes.count {
        let count = try stream.send(bytes.span.extracting(sent..<bytes.count))
        sent += count
        if count == 0 {
            let reason = await stream.waitUntilWritable(until: .never)
            try #require(reason == .ready)
        }
    }
}

/// What came of one client: its own view after one word there and back, and the server's.
struct Meeting: Sendable {
    var client: Result<ClientView, any Error>
    var server: Result<String?, any Error>
    /// The client's certificate as the server saw it.
    var certificate: ClientCertificate?

    var serverError: TLSError? {
        guard case .failure(let error) = server else { return nil }
        return error as? TLSError
    }
}

struct ClientView: Sendable {
    let version: String
    let cipher: String
    let isResumed: Bool
    let chosenProtocol: String?
    let serverCommonName: String
    let session: TLSClient.Session
}

private final class Noted: Sendable {
    let value = Mutex<ClientCertificate?>(nil)
}

func meet(
    _ context: TLSContext, clients: TLSClientAuthentication = .requiredByAuthorities,
    _ options: TLSClient.Options = .init(), resuming session: TLSClient.Session? = nil, on loop: EventLoop
) async throws -> Meeting {
    let (server, client) = try socketPair()
    let certificate = Noted()
    async let served: Result<String?, any Error> = {
        do {
            return .success(
                try await serveEcho(server, context, clients: clients, on: loop) { shown in
                    certificate.value.withLock { $0 = shown }
                })
        } catch {
            return .failure(error)
        }
    }()
    let seen: Result<ClientView, any Error>
    do {
        seen = .success(
            try await blocking {
                let client = try TLSClient(client, options, resuming: session)
                try client.connect()
                try client.send("word")
                guard try client.receiveText() == "word" else { throw TLSClient.Failure(description: "no echo") }
                return ClientView(
                    version: client.version, cipher: client.cipher, isResumed: client.isResumed,
                    chosenProtocol: client.chosenProtocol, serverCommonName: client.serverCommonName,
                    session: client.session
                )
            }
        )
    } catch {
        seen = .failure(error)
    }
    return Meeting(client: seen, server: await served, certificate: certificate.value.withLock(\.self))
}
