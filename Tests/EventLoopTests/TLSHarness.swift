import COpenSSL
import Cryptography
import Foundation
import Synchronization
import System
import TestSupport
import Testing

@testable import EventLoop

extension WatchedCertificates {
    static func withOneCertificate() throws -> WatchedCertificates {
        let certificates = Certificates()
        return try withExtendedLifetime(certificates) {
            try WatchedCertificates(TLSFiles(standard: try certificates.make("one").files))
        }
    }
}

extension TLSFiles {
    init(standard: Pair, others: [Pair] = [], clientAuthorities: String? = nil) {
        self.init([standard] + others, clientAuthorities: clientAuthorities)
    }
}

/// Serves one client: performs the handshake, then echoes every byte until the client ends.
///
/// - Parameter note: Gets the client's certificate after the handshake.
func serveEcho(
    _ descriptor: Int32, _ context: WatchedCertificates, clients: TLSClientAuthentication = .requiredByAuthorities,
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
    _ descriptor: Int32, _ context: WatchedCertificates, clients: TLSClientAuthentication = .none,
    until deadline: MonotonicTime = .never, _ budget: BufferBudget = BufferBudget(limit: 1 << 20), on loop: EventLoop
) async throws -> TCPStream {
    var stream = try TCPStream(FileDescriptor(owning: descriptor), on: loop)
    try await stream.startTLS(context, clients: clients, until: deadline, among: TLSHandshakes(budget))
    return stream
}

/// Waits for bytes and appends them; false at the end of the input.
func receive(from stream: borrowing TCPStream, into buffer: inout [UInt8]) async throws -> Bool {
    while true {
        switch try stream.receive(into: &buffer, room: 16 << 10) {
        case .received: return true
        case .endOfInput: return false
        case .wouldBlock:
            let mayBeReadable = stream.mayBeReadable
            #expect(!mayBeReadable)
            let reason = await stream.waitUntilReadable(until: .never, [])
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

/// How a connection went: the client's view after one word was echoed, and the server's.
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
    _ context: WatchedCertificates, clients: TLSClientAuthentication = .requiredByAuthorities,
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

/// Certificates and keys for one test, made with the openssl command and deleted afterwards.
final class Certificates: Sendable {
    struct Pair: Sendable {
        let certificate: String
        let key: String

        var files: TLSFiles.Pair { TLSFiles.Pair(certificateChain: certificate, privateKey: key) }
    }

    enum Kind: String {
        case ellipticCurve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256"
        case rsa = "-newkey rsa:2048"
        case weakRSA = "-newkey rsa:1024"
    }

    private let directory = TemporaryDirectory()

    func path(_ name: String) -> String { "\(directory.path)/\(name)" }

    /// A certificate for names; signed by an authority, or by itself.
    func make(
        _ name: String, for names: [String] = [], kind: Kind = .ellipticCurve, days: Int = 30, by authority: Pair? = nil
    ) throws -> Pair {
        let pair = Pair(certificate: path("\(name).pem"), key: path("\(name).key"))
        var arguments = ["req", "-x509"] + kind.rawValue.split(separator: " ").map(String.init)
        arguments += ["-nodes", "-days", "\(days)", "-subj", "/CN=\(name)"]
        arguments += ["-out", pair.certificate, "-keyout", pair.key]
        if !names.isEmpty {
            arguments += ["-addext", "subjectAltName=" + names.map { "DNS:\($0)" }.joined(separator: ",")]
        }
        if let authority { arguments += ["-CA", authority.certificate, "-CAkey", authority.key] }
        try openSSL(arguments)
        return pair
    }

    func openSSL(_ arguments: [String]) throws {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = ["openssl"] + arguments
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        try #require(process.terminationStatus == 0, "openssl \(arguments.joined(separator: " "))")
    }

    /// Replaces one pair's files by another's, as a renewal does.
    func replace(_ old: Pair, by new: Pair) throws {
        for (from, to) in [(new.certificate, old.certificate), (new.key, old.key)] { try replace(to, by: from) }
    }

    func replace(_ old: String, by new: String) throws {
        try Data(contentsOf: URL(filePath: new)).write(to: URL(filePath: old), options: .atomic)
    }
}
