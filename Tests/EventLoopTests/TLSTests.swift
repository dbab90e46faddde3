import COpenSSL
import Foundation
import Testing

@testable import EventLoop

/// A server's answer to one client: the handshake, then every byte back until the client has had enough.
private func serveEcho(
    _ descriptor: Int32, _ context: TLSContext, on loop: EventLoop, handshakeTime: Duration = .seconds(10)
) async throws -> String? {
    try await loop.perform {
        var stream = try TCPStream(FileDescriptor(owning: descriptor), on: loop)
        try await stream.startTLS(context, until: .now + Nanoseconds(handshakeTime))
        let version = stream.tlsVersion
        var buffer: [UInt8] = []
        while try await receive(from: stream, into: &buffer) {
            try await send(buffer, to: stream)
            buffer.removeAll(keepingCapacity: true)
        }
        return version
    }
}

/// False at the end of the input.
private func receive(from stream: borrowing TCPStream, into buffer: inout [UInt8]) async throws -> Bool {
    while true {
        switch try stream.receive(into: &buffer, room: 16 << 10) {
        case .received: return true
        case .endOfInput: return false
        case .wouldBlock:
            let mayBeReadable = stream.mayBeReadable
            #expect(!mayBeReadable)
            let reason = await stream.waitUntilReadable(until: .now + Nanoseconds(.seconds(20)), isIdle: false)
            try #require(reason == .ready)
        }
    }
}

private func send(_ bytes: [UInt8], to stream: borrowing TCPStream) async throws {
    var sent = 0
    while sent < bytes.count {
        let count = try stream.send(bytes.span.extracting(sent..<bytes.count))
        sent += count
        if count == 0 {
            let reason = await stream.waitUntilWritable(until: .now + Nanoseconds(.seconds(20)))
            try #require(reason == .ready)
        }
    }
}

/// What came of one client: its own view after one word there and back, and the server's.
private struct Meeting: Sendable {
    var client: Result<ClientView, any Error>
    var server: Result<String?, any Error>

    var serverError: TLSError? {
        guard case .failure(let error) = server else { return nil }
        return error as? TLSError
    }
}

private struct ClientView: Sendable {
    let version: String
    let cipher: String
    let isResumed: Bool
    let chosenProtocol: String?
    let serverCommonName: String
    let session: TLSClient.Session
}

private func meet(
    _ context: TLSContext, _ options: TLSClient.Options = .init(), resuming session: TLSClient.Session? = nil,
    on loop: EventLoop
) async throws -> Meeting {
    let (server, client) = try socketPair()
    async let served: Result<String?, any Error> = {
        do { return .success(try await serveEcho(server, context, on: loop)) } catch { return .failure(error) }
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
    return Meeting(client: seen, server: await served)
}

@Suite struct TLSStreamTests {
    @Test(
        "much data goes there and back unharmed while both sides hold each other up",
        arguments: [TLS1_2_VERSION, TLS1_3_VERSION])
    func roundTrip(version: Int32) async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
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

    @Test("an answer larger than the socket waits for its client, and the loop serves others meanwhile")
    func backPressure() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            let total = 12 << 20
            async let sent: Void = loop.perform {
                var stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                try await stream.startTLS(context, until: .now + Nanoseconds(.seconds(10)))
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

    @Test("bytes that are decrypted already keep the stream readable")
    func pending() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let text: String = loop.perform {
                var stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                try await stream.startTLS(context, until: .now + Nanoseconds(.seconds(10)))
                var buffer: [UInt8] = []
                while buffer.count < 30 {
                    switch try stream.receive(into: &buffer, room: 4) {
                    case .received(let count): #expect(count <= 4)
                    case .endOfInput: return "end of input"
                    case .wouldBlock:
                        let reason = await stream.waitUntilReadable(
                            until: .now + Nanoseconds(.seconds(5)), isIdle: false)
                        try #require(reason == .ready)
                    }
                }
                let mayBeReadable = stream.mayBeReadable
                #expect(!mayBeReadable)
                let reason = await stream.waitUntilReadable(until: .now + Nanoseconds(.milliseconds(5)), isIdle: false)
                #expect(reason == .timedOut)
                return String(decoding: buffer, as: UTF8.self)
            }
            let client = try TLSClient(descriptor)
            try await blocking {
                try client.connect()
                // Three records, which arrive together.
                for _ in 0..<3 { try client.send("0123456789") }
            }
            #expect(try await text == "012345678901234567890123456789")
        }
    }

    @Test("a stream that goes tells its client that this is the end")
    func closeNotify() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let served: Void = loop.perform {
                var stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                try await stream.startTLS(context, until: .now + Nanoseconds(.seconds(10)))
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

    @Test("a client of TLS 1.2 that wants to renegotiate is refused")
    func renegotiation() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            let served = Task { try await serveEcho(server, context, on: loop) }
            let isRefused = try await blocking {
                let client = try TLSClient(descriptor, .init(maximum: TLS1_2_VERSION))
                try client.connect()
                return !client.renegotiates()
            }
            #expect(isRefused)
            // OpenSSL's client then breaks off.
            await #expect(throws: SystemError(call: "SSL_read", code: EPROTO)) { try await served.value }
        }
    }

    @Test("a client may ask for new keys in the middle")
    func keyUpdate() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
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
        "text on a TLS port is told apart and can be answered in clear",
        arguments: ["GET / HTTP/1.1\r\n\r\n", "DELETE / HTTP/1.1\r\n\r\n", "get"]
    )
    func plainRequest(request: String) async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let (server, client) = try socketPair()
            async let seen: String = loop.perform {
                var stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                do throws(TLSError) {
                    try await stream.startTLS(context, until: .now + Nanoseconds(.seconds(10)))
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
            var answer = [UInt8](repeating: 0, count: 100)
            let count = read(client, &answer, 100)
            #expect(String(decoding: answer.prefix(max(0, count)), as: UTF8.self).hasPrefix("HTTP/1.1 400"))
            close(client)
        }
    }

    @Test(
        "a handshake that does not come on ends at its deadline, one that is broken off at once; others go on",
        arguments: [[], [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]] as [[UInt8]]
    )
    func slowHandshake(beginning: [UInt8]) async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
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

    @Test("rubbish ends the handshake with a reason")
    func rubbish() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let (server, client) = try socketPair()
            _ = write(client, [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07], 8)
            await #expect(throws: TLSError.refused(reason: "wrong version number")) {
                try await serveEcho(server, context, on: loop)
            }
            close(client)
        }
    }

    @Test("draining ends a connection that has not begun its handshake")
    func draining() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let (server, client) = try socketPair()
            let served = Task { try await serveEcho(server, context, on: loop) }
            try await Task.sleep(for: .milliseconds(20))
            loop.beginDraining()
            await #expect(throws: TLSError.stopped) { try await served.value }
            close(client)
        }
    }
}

@Suite struct TLSRulesTests {
    @Test(
        "TLS 1.2 and 1.3 are spoken, with keys of both kinds, and nothing older",
        arguments: [Certificates.Kind.ellipticCurve, .rsa]
    )
    func versions(kind: Certificates.Kind) async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one", kind: kind).files))
        try await withLoop { loop in
            for (version, name) in [(TLS1_2_VERSION, "TLSv1.2"), (TLS1_3_VERSION, "TLSv1.3")] {
                let meeting = try await meet(context, .init(minimum: version, maximum: version), on: loop)
                #expect(try meeting.client.get().version == name)
                #expect(try meeting.server.get() == name)
            }
            for version in [TLS1_VERSION, TLS1_1_VERSION] {
                let meeting = try await meet(context, .init(minimum: version, maximum: version), on: loop)
                #expect(meeting.serverError == .refused(reason: "unsupported protocol"))
                #expect(throws: TLSClient.Failure.self) { try meeting.client.get() }
            }
        }
    }

    @Test("weak ciphers of TLS 1.2 are refused, strong ones taken")
    func ciphers() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one", kind: .rsa).files))
        try await withLoop { loop in
            for list in ["AES128-SHA", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "DHE-RSA-AES128-GCM-SHA256"] {
                let options = TLSClient.Options(maximum: TLS1_2_VERSION, ciphers: "\(list):@SECLEVEL=0")
                let meeting = try await meet(context, options, on: loop)
                #expect(meeting.serverError == .refused(reason: "no shared cipher"))
            }
            for list in ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"] {
                let options = TLSClient.Options(maximum: TLS1_2_VERSION, ciphers: list)
                let client = try await meet(context, options, on: loop).client.get()
                #expect(client.cipher == list)
            }
        }
    }

    @Test(
        "http/1.1 is chosen where it is offered, and a client that offers only others is refused",
        arguments: [
            ([], nil, true), (["http/1.1"], "http/1.1", true), (["h2", "http/1.1"], "http/1.1", true),
            (["h2"], nil, false), (["http/1.0", "http/1.11"], nil, false),
        ] as [([String], String?, Bool)]
    )
    func applicationProtocol(offered: [String], chosen: String?, isAccepted: Bool) async throws {
        let certificates = try Certificates()
        let context = try TLSContext(TLSFiles(standard: try certificates.make("one").files))
        try await withLoop { loop in
            let meeting = try await meet(context, .init(protocols: offered), on: loop)
            if isAccepted {
                #expect(try meeting.client.get().chosenProtocol == chosen)
            } else {
                #expect(meeting.serverError == .refused(reason: "no application protocol"))
                #expect { try meeting.client.get() } throws: { "\($0)".contains("no application protocol") }
            }
        }
    }

    @Test("a certificate is chosen by the name that the client asks for")
    func serverNames() async throws {
        let certificates = try Certificates()
        let context = try TLSContext(
            TLSFiles(
                standard: try certificates.make("first", for: ["first.example"]).files,
                others: [
                    try certificates.make("wild", for: ["*.example.org", "example.org"], kind: .rsa).files,
                    try certificates.make("exact", for: ["api.example.org"]).files,
                ]
            )
        )
        let cases = [
            (nil, "first"), ("first.example", "first"), ("unknown.example", "first"), ("example.org", "wild"),
            ("www.example.org", "wild"), ("WWW.Example.ORG", "wild"), ("api.example.org", "exact"),
            ("a.b.example.org", "first"), ("org", "first"),
        ]
        try await withLoop { loop in
            for version in [TLS1_2_VERSION, TLS1_3_VERSION] {
                for (asked, name) in cases {
                    let options = TLSClient.Options(maximum: version, serverName: asked)
                    let client = try await meet(context, options, on: loop).client.get()
                    #expect(client.serverCommonName == name, "\(asked ?? "-")")
                }
            }
        }
    }

    @Test("a session is resumed, also for a name that is not the first and with a client certificate")
    func resumption() async throws {
        let certificates = try Certificates()
        let authority = try certificates.make("authority")
        let client = try certificates.make("client", by: authority)
        let context = try TLSContext(
            TLSFiles(
                standard: try certificates.make("first", for: ["first.example"]).files,
                others: [try certificates.make("second", for: ["second.example"]).files],
                clientAuthorities: authority.certificate
            )
        )
        try await withLoop { loop in
            for version in [TLS1_2_VERSION, TLS1_3_VERSION] {
                for name in ["first.example", "second.example"] {
                    let options = TLSClient.Options(maximum: version, serverName: name, identity: client)
                    let first = try await meet(context, options, on: loop).client.get()
                    #expect(!first.isResumed)
                    let second = try await meet(context, options, resuming: first.session, on: loop).client.get()
                    #expect(second.isResumed)
                    // A ticket from before a reload is worth nothing, and does no harm.
                    try context.reload()
                    let third = try await meet(context, options, resuming: first.session, on: loop).client.get()
                    #expect(!third.isResumed)
                }
            }
        }
    }

    @Test("where clients need a certificate, only one by the right authority is let in")
    func clientCertificates() async throws {
        let certificates = try Certificates()
        let authority = try certificates.make("authority")
        let context = try TLSContext(
            TLSFiles(standard: try certificates.make("one").files, clientAuthorities: authority.certificate)
        )
        let right = try certificates.make("right", by: authority)
        let stranger = try certificates.make("stranger", by: try certificates.make("other authority"))
        try await withLoop { loop in
            for version in [TLS1_2_VERSION, TLS1_3_VERSION] {
                func meeting(_ identity: Certificates.Pair?) async throws -> Meeting {
                    try await meet(context, .init(maximum: version, identity: identity), on: loop)
                }
                let accepted = try await meeting(right)
                #expect(throws: Never.self) { try accepted.client.get() }
                let without = try await meeting(nil)
                #expect(without.serverError == .refused(reason: "peer did not return a certificate"))
                #expect(throws: TLSClient.Failure.self) { try without.client.get() }
                let refused = try await meeting(stranger)
                #expect(
                    refused.serverError
                        == .refused(
                            reason: "client certificate: unable to get local issuer certificate"
                        )
                )
                #expect(throws: TLSClient.Failure.self) { try refused.client.get() }
            }
        }
    }
}

@Suite struct TLSContextTests {
    @Test("new files are used after a reload; bad ones leave the old in use and are reported once")
    func reload() async throws {
        let certificates = try Certificates()
        let current = try certificates.make("current")
        let next = try certificates.make("next")
        let other = try certificates.make("other")
        let context = try TLSContext(TLSFiles(standard: current.files))
        try await withLoop { loop in
            func expectCertificate(of name: String) async throws {
                let client = try await meet(context, on: loop).client.get()
                #expect(client.serverCommonName == name)
            }
            #expect(!context.filesHaveChanged)
            try await expectCertificate(of: "current")

            // A connection from before goes on while the files change under it.
            let (server, descriptor) = try socketPair()
            async let served = serveEcho(server, context, on: loop)
            let client = try TLSClient(descriptor)
            try await blocking { try client.connect() }

            try certificates.replace(current, by: next)
            #expect(context.filesHaveChanged)
            try await expectCertificate(of: "current")
            try context.reload()
            #expect(!context.filesHaveChanged)
            try await expectCertificate(of: "next")
            let answer = try await blocking {
                try client.send("still here")
                return try client.receiveText()
            }
            #expect(answer == "still here")
            shutdown(descriptor, Int32(SHUT_RDWR))
            _ = try await served

            try certificates.replace(current.key, by: other.key)
            let error = #expect(throws: TLSConfigurationError.self) { try context.reload() }
            #expect(error?.problem == .keyMismatch(certificate: current.certificate))
            #expect(!context.filesHaveChanged)
            try await expectCertificate(of: "next")

            try FileManager.default.removeItem(atPath: current.key)
            #expect(context.filesHaveChanged)
            #expect(throws: TLSConfigurationError.self) { try context.reload() }
            try await expectCertificate(of: "next")
        }
    }

    @Test("the expiry is that of the certificate that ends first")
    func expiry() throws {
        let certificates = try Certificates()
        let context = try TLSContext(
            TLSFiles(
                standard: try certificates.make("long", days: 300).files,
                others: [try certificates.make("short", days: 3).files]
            )
        )
        let days = Double(context.earliestExpiry - Int64(Date().timeIntervalSince1970)) / 86_400
        #expect(2.9...3.0 ~= days)
    }

    @Test("files that cannot be used are refused with what is wrong and what to do")
    func faults() throws {
        let certificates = try Certificates()
        let good = try certificates.make("good")
        let rsa = try certificates.make("rsa", kind: .rsa)
        let weak = try certificates.make("weak", kind: .weakRSA)
        let encrypted = certificates.path("encrypted.key")
        try certificates.openSSL(["pkey", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", encrypted])
        let empty = certificates.path("empty.pem")
        try Data().write(to: URL(filePath: empty))
        let missing = certificates.path("missing.pem")

        func problem(
            _ certificate: String, _ key: String, _ authorities: String? = nil
        ) -> (String, TLSConfigurationError.Problem, String)? {
            let pair = TLSFiles.Pair(certificateChain: certificate, privateKey: key)
            do throws(TLSConfigurationError) {
                // Also as the second pair: it is the file at fault that is named.
                _ = try TLSContext(TLSFiles(standard: good.files, others: [pair], clientAuthorities: authorities))
                return nil
            } catch {
                return (error.file, error.problem, error.description)
            }
        }
        let cases: [(String, String, String?, String, TLSConfigurationError.Problem)] = [
            (missing, good.key, nil, missing, .unreadable("No such file or directory")),
            (good.certificate, missing, nil, missing, .unreadable("No such file or directory")),
            (empty, good.key, nil, empty, .noCertificate),
            (good.key, good.key, nil, good.key, .noCertificate),
            (weak.certificate, weak.key, nil, weak.certificate, .noCertificate),
            (good.certificate, empty, nil, empty, .noPrivateKey),
            (good.certificate, good.certificate, nil, good.certificate, .noPrivateKey),
            (good.certificate, encrypted, nil, encrypted, .encryptedPrivateKey),
            (good.certificate, rsa.key, nil, rsa.key, .keyMismatch(certificate: good.certificate)),
            (rsa.certificate, weak.key, nil, weak.key, .keyMismatch(certificate: rsa.certificate)),
            (good.certificate, good.key, empty, empty, .noClientAuthority),
            (good.certificate, good.key, missing, missing, .unreadable("No such file or directory")),
        ]
        for (certificate, key, authorities, file, expected) in cases {
            let found = problem(certificate, key, authorities)
            #expect(found?.0 == file)
            #expect(found?.1 == expected)
            #expect(found?.2.hasPrefix(file) == true)
        }
        #expect(problem(weak.certificate, weak.key)?.2.contains("(OpenSSL: ee key too small)") == true)
        #expect(problem(good.certificate, good.key) == nil)
    }
}
