import COpenSSL
import Cryptography
import Foundation
import System
import Testing

@testable import EventLoop

@Suite struct ClientCertificateTests {
    private let certificates = Certificates()
    private let authority: Certificates.Pair
    private let context: WatchedCertificates

    init() throws {
        authority = try certificates.make("authority")
        context = try WatchedCertificates(
            TLSFiles(standard: try certificates.make("server").files, clientAuthorities: authority.certificate))
    }

    private static let versions = [TLS1_2_VERSION, TLS1_3_VERSION]

    /// A client's certificate with a subject and extensions as `openssl req` takes them, signed by the authority.
    private func client(_ subject: String, _ extensions: [String] = [], days: Int = 2) throws -> Certificates.Pair {
        let name = certificates.path("client\(UInt64.random(in: 0 ... .max))")
        let pair = Certificates.Pair(certificate: name + ".pem", key: name + ".key")
        let request = name + ".csr"
        var arguments = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        arguments += ["-utf8", "-subj", subject, "-keyout", pair.key, "-out", request]
        try certificates.openSSL(arguments + extensions.flatMap { ["-addext", $0] })
        try certificates.openSSL([
            "x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key, "-days", "\(days)",
            "-copy_extensions", "copyall", "-out", pair.certificate,
        ])
        return pair
    }

    private func visit(
        _ clients: TLSClientAuthentication, _ identity: Certificates.Pair?, _ version: Int32 = TLS1_3_VERSION,
        resuming session: TLSClient.Session? = nil, on loop: EventLoop
    ) async throws -> Meeting {
        try await meet(
            context, clients: clients, .init(maximum: version, identity: identity), resuming: session, on: loop)
    }

    /// The extension with names of any tags and bytes, which the command has no other way to make.
    private static func alternativeNames(_ names: (tag: UInt8, text: String)...) -> String {
        let entries = names.flatMap { [$0.tag, UInt8($0.text.utf8.count)] + Array($0.text.utf8) }
        let bytes = [0x30, UInt8(entries.count)] + entries
        return "subjectAltName=DER:" + bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined(separator: ":")
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let subject: String
        var extensions: [String] = []
        var uri: String?
        var dns: String?
        var common: String?
    }

    @Test(
        arguments: [
            Case(testDescription: "a common name alone", subject: "/O=x/CN=Ann", common: "Ann"),
            Case(testDescription: "nothing", subject: "/O=x"),
            Case(testDescription: "a common name in UTF-8", subject: "/CN=Zo\u{eb}", common: "Zo\u{eb}"),
            Case(testDescription: "two common names", subject: "/CN=Ann/CN=Ben"),
            Case(
                testDescription: "a URI", subject: "/CN=Ann", extensions: ["subjectAltName=URI:spiffe://a.example/ann"],
                uri: "spiffe://a.example/ann", common: "Ann"),
            Case(
                testDescription: "a DNS name", subject: "/O=x", extensions: ["subjectAltName=DNS:App.Example"],
                dns: "app.example"),
            Case(
                testDescription: "one of each kind, and others", subject: "/O=x",
                extensions: ["subjectAltName=IP:127.0.0.1,DNS:a.example,email:a@b.example,URI:urn:a"], uri: "urn:a",
                dns: "a.example"),
            Case(
                testDescription: "two of each kind", subject: "/CN=Ann",
                extensions: ["subjectAltName=DNS:a.example,URI:urn:a,DNS:b.example,URI:urn:b"], common: "Ann"),
            Case(
                testDescription: "the same name twice", subject: "/O=x",
                extensions: ["subjectAltName=DNS:a.example,DNS:a.example"]),
            Case(
                testDescription: "names with NUL", subject: "/O=x",
                extensions: [alternativeNames((0x86, "urn:ann\0.evil"), (0x82, "ann\0.evil"))]),
            Case(
                testDescription: "a name with NUL beside a good one", subject: "/O=x",
                extensions: [alternativeNames((0x86, "urn:ann"), (0x86, "urn:ben\0"))]),
            Case(
                testDescription: "names that are not ASCII", subject: "/O=x",
                extensions: [alternativeNames((0x86, "urn:\u{e9}"), (0x82, "\u{e9}"))]),
            Case(
                testDescription: "empty names", subject: "/O=x", extensions: [alternativeNames((0x86, ""), (0x82, ""))]),
        ]
    )
    func `a name is there only if it is the only one of its kind`(_ test: Case) async throws {
        let identity = try client(test.subject, test.extensions)
        try await withLoop { loop in
            let certificate = try #require(try await visit(.required, identity, on: loop).certificate)
            let text = { (bytes: [UInt8]?) in bytes.map { String(decoding: $0, as: UTF8.self) } }
            #expect(text(certificate.uriName) == test.uri)
            #expect(text(certificate.dnsName) == test.dns)
            #expect(text(certificate.commonName) == test.common)
        }
    }

    @Test func `of two listeners with one context, one may require certificates and the other not`() async throws {
        let known = try client("/CN=Ann")
        try await withLoop { loop in
            for version in Self.versions {
                for clients in [TLSClientAuthentication.required, .requiredByAuthorities] {
                    let certificate = try await visit(clients, known, version, on: loop).certificate
                    #expect(certificate?.commonName == Array("Ann".utf8))
                    #expect(
                        try await visit(clients, nil, version, on: loop).serverError
                            == .refused(reason: "peer did not return a certificate"))
                }
                #expect(try await visit(.optional, known, version, on: loop).certificate != nil)
                for (clients, identity) in [(TLSClientAuthentication.optional, nil), (.none, nil), (.none, known)] {
                    let meeting = try await visit(clients, identity, version, on: loop)
                    #expect(throws: Never.self) { try meeting.client.get() }
                    #expect(meeting.certificate == nil)
                }
            }
        }
    }

    @Test func `a certificate that is not valid ends the handshake, also where none is required`() async throws {
        let expired = try client("/CN=Ann", days: 0)
        let stranger = try certificates.make("stranger", by: try certificates.make("another authority"))
        let server = try client("/CN=Ann", ["extendedKeyUsage=serverAuth"])
        let cases = [
            (expired, "certificate has expired"), (stranger, "unable to get local issuer certificate"),
            (server, "unsuitable certificate purpose"),
        ]
        try await withLoop { loop in
            for version in Self.versions {
                for clients in [TLSClientAuthentication.required, .optional] {
                    for (identity, reason) in cases {
                        let meeting = try await visit(clients, identity, version, on: loop)
                        #expect(meeting.serverError == .refused(reason: "client certificate: \(reason)"))
                        #expect(meeting.certificate == nil)
                    }
                }
            }
        }
    }

    @Test func `sessions are not resumed where a certificate is asked for`() async throws {
        let identity = try client("/CN=Ann")
        try await withLoop { loop in
            for version in Self.versions {
                for begun in [TLSClientAuthentication.none, .optional, .required] {
                    let session = try await visit(begun, identity, version, on: loop).client.get().session
                    let refused = try await visit(.required, nil, version, resuming: session, on: loop)
                    #expect(refused.serverError == .refused(reason: "peer did not return a certificate"))
                    // A full handshake instead, in which the client shows its certificate.
                    let other = try await visit(begun, identity, version, on: loop).client.get().session
                    for asking in [TLSClientAuthentication.required, .optional] {
                        let full = try await visit(asking, identity, version, resuming: other, on: loop)
                        #expect(try !full.client.get().isResumed)
                        #expect(full.certificate != nil)
                    }
                }
            }
        }
    }

    @Test func `an intermediate authority is trusted without its root, and alone`() async throws {
        let intermediate = try certificates.make("intermediate", by: authority)
        let known = try certificates.make("known", by: intermediate)
        let sibling = try client("/CN=Ben")
        let file = certificates.path("authorities.pem")
        let text = { (path: String) in try String(contentsOfFile: path, encoding: .utf8) }
        let files = TLSFiles(standard: try certificates.make("another").files, clientAuthorities: file)
        // A damaged part is refused, wherever it is; what is no certificate is passed over.
        let good = try text(intermediate.certificate)
        let damaged = try text(authority.certificate).replacing("MII", with: "M!I")
        let endless = try text(authority.certificate).replacing("-----END CERTIFICATE-----\n", with: "")
        let cases = [
            (damaged + good, "holds no usable certificate authorities"),
            (good + damaged, "only 1 of its 2 certificates can be read"),
            (endless + good, "only 1 of its 2 certificates can be read"),
        ]
        for (parts, problem) in cases {
            try parts.write(toFile: file, atomically: true, encoding: .utf8)
            let error = #expect(throws: KeyFileError.self) { try WatchedCertificates(files) }
            #expect(error?.description.contains(problem) == true)
        }
        try (try text(intermediate.key) + text(intermediate.certificate))
            .write(toFile: file, atomically: true, encoding: .utf8)
        let context = try WatchedCertificates(files)
        #expect(context.clientAuthorities?.expiries.count == 1)
        try await withLoop { loop in
            let taken = try await meet(context, clients: .required, .init(identity: known), on: loop)
            #expect(taken.certificate != nil)
            let refused = try await meet(context, clients: .required, .init(identity: sibling), on: loop)
            #expect(
                refused.serverError == .refused(reason: "client certificate: unable to get local issuer certificate"))
        }
    }

    @Test func `a client is accepted until its chain ends, or its authorities are replaced`() async throws {
        let identity = try client("/CN=Ann", days: 2)
        let now = Int64(Date().timeIntervalSince1970)
        try await withLoop { loop in
            let (server, descriptor) = try socketPair()
            async let served: Void = loop.perform { [context, certificates, authority] in
                let stream = try await acceptTLS(server, context, clients: .required, on: loop)
                let accepted = [0, 1, 3].map { stream.acceptsClient(at: now + $0 * 86_400) }
                #expect(accepted == [true, true, false])
                // The same authorities again change nothing.
                try context.reload()
                let isAccepted = stream.acceptsClient(at: now)
                #expect(isAccepted)
                try certificates.replace(authority.certificate, by: try certificates.make("next").certificate)
                try context.reload()
                let isStillAccepted = stream.acceptsClient(at: now)
                #expect(!isStillAccepted)
            }
            let client = try TLSClient(descriptor, .init(identity: identity))
            try await blocking { try client.connect() }
            try await served
        }
    }

    @Test func `the first authorities end the connections that came without a certificate`() async throws {
        let server = try certificates.make("first").files
        for (clients, isEnded) in [(TLSClientAuthentication.requiredByAuthorities, true), (.none, false)] {
            let context = try WatchedCertificates(TLSFiles(standard: server))
            try await withLoop { loop in
                let (descriptor, peer) = try socketPair()
                async let served: Void = loop.perform { [authority] in
                    let stream = try await acceptTLS(descriptor, context, clients: clients, on: loop)
                    let isAccepted = stream.acceptsClient(at: 0)
                    #expect(isAccepted)
                    context.use(
                        try context.read(TLSFiles(standard: server, clientAuthorities: authority.certificate)))
                    let isStillAccepted = stream.acceptsClient(at: 0)
                    #expect(isStillAccepted != isEnded)
                }
                let client = try TLSClient(peer)
                try await blocking { try client.connect() }
                try await served
            }
        }
    }

    @Test func `other authorities take effect at a reload`() async throws {
        let before = try client("/CN=Ann")
        let next = try certificates.make("next authority")
        let after = try certificates.make("after", by: next)
        try await withLoop { loop in
            #expect(try await visit(.required, after, on: loop).certificate == nil)
            try certificates.replace(authority.certificate, by: next.certificate)
            #expect(context.haveChanged)
            try context.reload()
            for clients in [TLSClientAuthentication.required, .optional] {
                for version in Self.versions {
                    #expect(try await visit(clients, after, version, on: loop).certificate != nil)
                    #expect(
                        try await visit(clients, before, version, on: loop).serverError
                            == .refused(reason: "client certificate: unable to get local issuer certificate"))
                }
            }
        }
    }
}
