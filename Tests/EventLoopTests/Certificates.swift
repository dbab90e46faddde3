import Foundation
import TestSupport
import Testing

@testable import EventLoop

/// Certificates and keys for one test, made with the openssl command and gone afterwards.
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

    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

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

    /// Puts one pair's files in the place of another's, as a renewal does.
    func replace(_ old: Pair, by new: Pair) throws {
        for (from, to) in [(new.certificate, old.certificate), (new.key, old.key)] { try replace(to, by: from) }
    }

    func replace(_ old: String, by new: String) throws {
        try Data(contentsOf: URL(filePath: new)).write(to: URL(filePath: old), options: .atomic)
    }
}
