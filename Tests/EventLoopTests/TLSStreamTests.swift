import COpenSSL
import Foundation
import System
import Testing

@testable import EventLoop

@Suite struct TLSStreamTests {
    private let context: WatchedCertificates

    init() throws {
        context = try .withOneCertificate()
    }

    @Test(
        arguments: [TLS1_2_VERSION, TLS1_3_VERSION])
    func `much data goes there and back unharmed while both sides hold each other up`(version: Int32) async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let served = serveEcho(server, context, on: loop)
            let total = 24 << 20
            let client = try TLSClient(descriptor, .init(minimum: version, maximum: version))
            let received = try await blocking {
                try client.connect()
                var next: UInt8 = 0
                var received = 0
                // Reads only after much was written: the server's answers fill the socket meanwhile.
                for _ in 0..<(total / (1 << 20)) {
                    try client.send((0..<(1 << 20)).map { UInt8(truncatingIfNeeded: $0 % 251) })
                    var wanted = 1 << 20
                    while wanted > 0 {
                        let bytes = try client.receive()
                        guard !bytes.isEmpty else { return received }
                        for byte in bytes {
                            guard byte == next else { return received }
                            next = next == 250 ? 0 : next + 1
                            received += 1
                            wanted -= 1
                            if received % (1 << 20) == 0 { next = 0 }
                        }
                    }
                }
                return received
            }
            #expect(received == total)
            _ = try await blocking { try client.send("end") }
            // Without close_notify: to the server an end like any other.
            shutdown(descriptor, Int32(SHUT_RDWR))
            #expect(try await served == (version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3"))
        }
    }

    @Test
    func `an answer larger than the socket waits for its client, and the loop serves others meanwhile`() async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            let total = 12 << 20
            async let sent: Void = loop.perform {
                let stream = try await acceptTLS(server, context, on: loop)
                try await send([UInt8](repeating: 7, count: total), to: stream)
                stream.finishSending()
                var rest: [UInt8] = []
                while try await receive(from: stream, into: &rest) {}
                #expect(rest == Array("thanks".utf8))
            }
            let client = try TLSClient(descriptor)
            try await blocking { try client.connect() }
            try await Task.sleep(for: .milliseconds(50))
            let other = try await meet(context, on: loop)
            #expect(throws: Never.self) { try other.client.get() }
            let received = try await blocking {
                var received = 0
                while true {
                    let bytes = try client.receive()
                    // A proper end: close_notify came.
                    if bytes.isEmpty { break }
                    received += bytes.count
                }
                try client.send("thanks")
                return received
            }
            #expect(received == total)
            shutdown(descriptor, Int32(SHUT_WR))
            try await sent
        }
    }

    @Test
    func `bytes that are decrypted already keep the stream readable`() async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let text: String = loop.perform {
                let stream = try await acceptTLS(server, context, on: loop)
                var buffer: [UInt8] = []
                while true {
                    switch try stream.receive(into: &buffer, room: 4) {
                    case .received(let count):
                        #expect(count <= 4)
                        // The rest of a record is decrypted, so no event announces it.
                        guard !buffer.count.isMultiple(of: 10) else { continue }
                        let mayBeReadable = stream.mayBeReadable
                        #expect(mayBeReadable)
                        let reason = await stream.waitUntilReadable(until: loop.now, [])
                        #expect(reason == .ready)
                    case .endOfInput: return "end of input"
                    case .wouldBlock:
                        let mayBeReadable = stream.mayBeReadable
                        #expect(!mayBeReadable)
                        if buffer.count >= 30 { return String(decoding: buffer, as: UTF8.self) }
                        let reason = await stream.waitUntilReadable(until: .never, [])
                        try #require(reason == .ready)
                    }
                }
            }
            let client = try TLSClient(descriptor)
            try await blocking {
                try client.connect()
                // Three records, which may arrive together.
                for _ in 0..<3 { try client.send("0123456789") }
            }
            #expect(try await text == "012345678901234567890123456789")
        }
    }

    @Test
    func `a stream that goes tells its client that this is the end`() async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let served: Void = loop.perform {
                let stream = try await acceptTLS(server, context, on: loop)
                try await send(Array("all".utf8), to: stream)
            }
            let received = try await blocking {
                let client = try TLSClient(descriptor)
                try client.connect()
                // The second one throws where close_notify is missing.
                return [try client.receiveText(), try client.receiveText()]
            }
            #expect(received == ["all", ""])
            try await served
        }
    }

    @Test
    func `a client of TLS 1.2 that wants to renegotiate is refused`() async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            let served = Task { try await serveEcho(server, context, on: loop) }
            let isRefused = try await blocking {
                let client = try TLSClient(descriptor, .init(maximum: TLS1_2_VERSION))
                try client.connect()
                return !client.renegotiates()
            }
            #expect(isRefused)
            // The server does not wait for another attempt.
            await #expect(throws: SystemError(call: "SSL_read", code: EMSGSIZE)) { try await served.value }
        }
    }

    @Test(arguments: [(5, 1_000, 20), (8, 1_000, 1), (2_300, 256, 3), (1, 4, 20)])
    func `a client that sends hardly anything but new keys is cut off`(
        count: Int, bytes: Int, rounds: Int
    ) async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let served = serveEcho(server, context, on: loop)
            let isServed = try await blocking {
                let client = try TLSClient(descriptor)
                try client.connect()
                let text = String(repeating: "x", count: bytes)
                for _ in 0..<rounds {
                    for _ in 0..<count { try? client.updateKey() }
                    do {
                        try client.send(text)
                        guard try client.receiveText() == text else { return false }
                    } catch {
                        return false
                    }
                }
                return true
            }
            #expect(isServed == (count == 5))
            do {
                _ = try await served
                #expect(isServed)
            } catch is SystemError {
                #expect(!isServed)
            }
        }
    }

    @Test
    func `each new key of a client counts as a step of its connection`() async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let steps = loop.perform {
                let stream = try await acceptTLS(server, context, on: loop)
                var (buffer, steps) = ([UInt8](), [Int]())
                while try await receive(from: stream, into: &buffer) { steps.append(stream.takeSteps()) }
                return steps
            }
            try await blocking {
                let client = try TLSClient(descriptor)
                try client.connect()
                try client.send("one")
                for _ in 0..<3 { try client.updateKey() }
                try client.send("two")
                // Closing before the server's session tickets are read would reset the connection.
                shutdown(descriptor, Int32(SHUT_WR))
                var byte: UInt8 = 0
                while unsafe recv(descriptor, &byte, 1, 0) != 0 { usleep(1_000) }
            }
            #expect(try await steps.reduce(0, +) == 5)
        }
    }

    @Test
    func `a client may ask for new keys in the middle`() async throws {
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let served = serveEcho(server, context, on: loop)
            try await blocking {
                let client = try TLSClient(descriptor)
                try client.connect()
                for word in ["one", "two", "three"] {
                    try client.requestKeyUpdate()
                    try client.send(word)
                    #expect(try client.receiveText() == word)
                }
            }
            _ = try await served
        }
    }

    @Test(
        arguments: ["GET / HTTP/1.1\r\n\r\n", "DELETE / HTTP/1.1\r\n\r\n", "get"]
    )
    func `text on a TLS port is told apart and can be answered in clear`(request: String) async throws {
        try await withLoop { loop in
            let (server, client) = try socketPair()
            async let seen: String = loop.perform {
                var stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                do throws(TLSError) {
                    try await stream.startTLS(
                        context, clients: .none, until: .never, among: TLSHandshakes(BufferBudget(limit: 1 << 20)))
                } catch {
                    #expect(error == .plainRequest)
                }
                var buffer: [UInt8] = []
                _ = try await receive(from: stream, into: &buffer)
                try await send(Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8), to: stream)
                return String(decoding: buffer, as: UTF8.self)
            }
            _ = write(client, request, request.utf8.count)
            #expect(try await seen == request)
            awaitArrival(at: client)
            var answer = [UInt8](repeating: 0, count: 100)
            let count = read(client, &answer, 100)
            #expect(String(decoding: answer.prefix(max(0, count)), as: UTF8.self).hasPrefix("HTTP/1.1 400"))
            close(client)
        }
    }

    @Test(
        arguments: [[], [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]] as [[UInt8]]
    )
    func `a handshake that does not come on ends at its deadline, one that is broken off at once; others go on`(
        beginning: [UInt8]
    ) async throws {
        try await withLoop { loop in
            let (server, client) = try socketPair()
            _ = write(client, beginning, beginning.count)
            let start = MonotonicTime.now
            let served = Task { try await serveEcho(server, context, on: loop, handshakeTime: .milliseconds(300)) }
            let other = try await meet(context, on: loop)
            #expect(throws: Never.self) { try other.client.get() }
            await #expect(throws: TLSError.timedOut) { try await served.value }
            #expect(MonotonicTime.now >= start + Nanoseconds(.milliseconds(300)))
            close(client)

            let (secondServer, secondClient) = try socketPair()
            _ = write(secondClient, beginning, beginning.count)
            close(secondClient)
            await #expect(throws: TLSError.closed) { try await serveEcho(secondServer, context, on: loop) }
        }
    }

    @Test
    func `rubbish ends the handshake with a reason`() async throws {
        try await withLoop { loop in
            let (server, client) = try socketPair()
            _ = write(client, [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07], 8)
            await #expect(throws: TLSError.refused(reason: "wrong version number")) {
                try await serveEcho(server, context, on: loop)
            }
            close(client)
        }
    }

    @Test
    func `draining ends a connection that has not begun its handshake`() async throws {
        try await withLoop { loop in
            let (server, client) = try socketPair()
            let served = Task { try await serveEcho(server, context, on: loop) }
            try await Task.sleep(for: .milliseconds(20))
            loop.endIdleWaits()
            await #expect(throws: TLSError.stopped) { try await served.value }
            close(client)
        }
    }
}
