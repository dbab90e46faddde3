import COpenSSL
import Foundation
import System
import Testing

@testable import EventLoop

@Suite struct TLSRulesTests {
    private let certificates = Certificates()

    @Test(
        arguments: [Certificates.Kind.ellipticCurve, .rsa]
    )
    func `TLS 1.2 and 1.3 are spoken, with keys of both kinds, and nothing older`(kind: Certificates.Kind) async throws
    {
        let context = try WatchedCertificates(TLSFiles(standard: try certificates.make("one", kind: kind).files))
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

    @Test
    func `weak ciphers of TLS 1.2 are refused, strong ones taken`() async throws {
        let context = try WatchedCertificates(TLSFiles(standard: try certificates.make("one", kind: .rsa).files))
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
        arguments: [
            ([], nil, true), (["http/1.1"], "http/1.1", true), (["h2", "http/1.1"], "http/1.1", true),
            (["h2"], nil, false), (["http/1.0", "http/1.11"], nil, false),
        ] as [([String], String?, Bool)]
    )
    func `http/1.1 is chosen where it is offered, and a client that offers only others is refused`(
        offered: [String], chosen: String?, isAccepted: Bool
    ) async throws {
        let context = try WatchedCertificates(TLSFiles(standard: try certificates.make("one").files))
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

    @Test
    func `a certificate is chosen by the name that the client asks for`() async throws {
        let context = try WatchedCertificates(
            TLSFiles(
                standard: try certificates.make("first", for: ["first.example"]).files,
                others: [
                    try certificates.make("wild", for: ["*.example.org", "example.org"], kind: .rsa).files,
                    try certificates.make("exact", for: ["api.example.org"]).files,
                    try certificates.make("inside", for: ["*.internal"]).files,
                ]
            )
        )
        let cases = [
            (nil, "first"), ("first.example", "first"), ("unknown.example", "first"), ("example.org", "wild"),
            ("www.example.org", "wild"), ("www.example.org.", "wild"), ("api.example.org.", "exact"), (".", "first"),
            ("WWW.Example.ORG", "wild"), ("api.example.org", "exact"),
            ("a.b.example.org", "first"), ("org", "first"),
            ("a_b.example.org", "wild"),
            ("host.Internal", "inside"), ("internal", "first"), ("a.host.internal", "first"),
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

    @Test
    func `of certificates for the same names, a client gets one that it can check`() async throws {
        let context = try WatchedCertificates(
            TLSFiles(
                standard: try certificates.make("first", for: ["first.example"]).files,
                others: [
                    try certificates.make("elliptic", for: ["a.example", "b.example"]).files,
                    try certificates.make("rsa", for: ["B.example", "a.example"], kind: .rsa).files,
                    try certificates.make("late", for: ["a.example", "b.example"]).files,
                ]))
        #expect(context.certificates.count == 4)
        try await withLoop { loop in
            for (name, ciphers, expected) in [
                ("a.example", "ALL", "elliptic"), ("b.example", "aECDSA", "elliptic"), ("b.example", "aRSA", "rsa"),
                ("first.example", "aECDSA", "first"),
            ] {
                let options = TLSClient.Options(maximum: TLS1_2_VERSION, serverName: name, ciphers: ciphers)
                let client = try await meet(context, options, on: loop).client.get()
                #expect(client.serverCommonName == expected)
            }
        }
    }

    @Test
    func `a session is resumed, also for a name that is not the first`() async throws {
        let context = try WatchedCertificates(
            TLSFiles(
                standard: try certificates.make("first", for: ["first.example"]).files,
                others: [try certificates.make("second", for: ["second.example"]).files]
            )
        )
        try await withLoop { loop in
            for version in [TLS1_2_VERSION, TLS1_3_VERSION] {
                for name in ["first.example", "second.example"] {
                    let options = TLSClient.Options(maximum: version, serverName: name)
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
}
