import COpenSSL
import Foundation
import System
import Testing

@testable import EventLoop

@Suite struct WatchedCertificatesTests {
    private let certificates = Certificates()

    @Test
    func `new files are used after a reload; bad ones leave the old in use`() async throws {
        let current = try certificates.make("current")
        let next = try certificates.make("next")
        let other = try certificates.make("other")
        let context = try WatchedCertificates(TLSFiles(standard: current.files))
        try await withLoop { loop in
            func expectCertificate(of name: String) async throws {
                let client = try await meet(context, on: loop).client.get()
                #expect(client.serverCommonName == name)
            }
            try await expectCertificate(of: "current")

            // A connection from before goes on while the files change under it.
            let (server, descriptor) = try socketPair()
            async let served = serveEcho(server, context, on: loop)
            let client = try TLSClient(descriptor)
            try await blocking { try client.connect() }

            try certificates.replace(current, by: next)
            try await expectCertificate(of: "current")
            try context.reload()
            try await expectCertificate(of: "next")
            let answer = try await blocking {
                try client.send("still here")
                return try client.receiveText()
            }
            #expect(answer == "still here")
            shutdown(descriptor, Int32(SHUT_RDWR))
            _ = try await served

            try certificates.replace(current.key, by: other.key)
            let error = #expect(throws: KeyFileError.self) { try context.reload() }
            #expect(error?.description.contains("belong to the first certificate in \(current.certificate);") == true)
            #expect(context.fault == error)
            try await expectCertificate(of: "next")

            // Each of the files counts.
            try FileManager.default.removeItem(atPath: current.key)
            #expect(context.haveChanged)
            #expect(throws: KeyFileError.self) { try context.reload() }
            try await expectCertificate(of: "next")
        }
    }

    @Test
    func `the expiry is that of the certificate that ends first`() throws {
        let context = try WatchedCertificates(
            TLSFiles(
                standard: try certificates.make("long", days: 300).files,
                others: [try certificates.make("short", days: 3).files]
            )
        )
        let days = Double(context.earliestExpiry - Int64(Date().timeIntervalSince1970)) / 86_400
        #expect(2.9...3.0 ~= days)
    }

    @Test
    func `files that cannot be used are refused with what is wrong and what to do`() throws {
        let good = try certificates.make("good")
        let rsa = try certificates.make("rsa", kind: .rsa)
        let weak = try certificates.make("weak", kind: .weakRSA)
        let encrypted = certificates.path("encrypted.key")
        try certificates.openSSL(["pkey", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", encrypted])
        let empty = certificates.path("empty.pem")
        try Data().write(to: URL(filePath: empty))
        let missing = certificates.path("missing.pem")
        let pipe = certificates.path("pipe")
        try #require(mkfifo(pipe, 0o600) == 0)

        func problem(_ certificate: String, _ key: String, _ authorities: String? = nil) -> String? {
            let pair = TLSFiles.Pair(certificateChain: certificate, privateKey: key)
            do throws(KeyFileError) {
                // Also as the second pair: it is the file at fault that is named.
                _ = try WatchedCertificates(
                    TLSFiles(standard: good.files, others: [pair], clientAuthorities: authorities))
                return nil
            } catch {
                return error.description
            }
        }
        // OpenSSL alone would pass over the certificate behind one without an END line.
        let text = { (path: String) in try String(contentsOfFile: path, encoding: .utf8) }
        let endless = try text(good.certificate).replacing("-----END CERTIFICATE-----\n", with: "")
        let (broken, cut) = ("\(good.certificate).broken", "\(good.certificate).cut")
        try (try text(good.certificate) + endless + text(rsa.certificate))
            .write(toFile: broken, atomically: true, encoding: .utf8)
        try (try text(good.certificate) + endless).write(toFile: cut, atomically: true, encoding: .utf8)
        // It passes over an indented one as well, and begins behind a byte order mark.
        let (indented, marked) = ("\(good.certificate).indented", "\(good.certificate).marked")
        let (first, second) = (try text(good.certificate), try text(rsa.certificate))
        try (first + second.split(separator: "\n").map { " \($0)\n" }.joined())
            .write(toFile: indented, atomically: true, encoding: .utf8)
        try ("\u{FEFF}" + first).write(toFile: marked, atomically: true, encoding: .utf8)
        let (noFile, noCertificate) = ("cannot be read: No such file", "holds no usable certificate; ")
        let (notPlain, noKey) = ("cannot be read: it is no regular file; ", "holds no usable private key; ")
        let cases: [(String, String, String?, String, String)] = [
            (missing, good.key, nil, missing, noFile), (good.certificate, missing, nil, missing, noFile),
            (empty, good.key, nil, empty, noCertificate), (good.key, good.key, nil, good.key, noCertificate),
            (weak.certificate, weak.key, nil, weak.certificate, noCertificate),
            (broken, good.key, nil, broken, "is damaged: only 2 of its 3 certificates can be read; "),
            (cut, good.key, nil, cut, "is damaged: only 1 of its 2 certificates can be read; "),
            (indented, good.key, nil, indented, "is damaged: only 1 of its 2 certificates can be read; "),
            (good.certificate, empty, nil, empty, noKey),
            (good.certificate, good.certificate, nil, good.certificate, noKey),
            (good.certificate, encrypted, nil, encrypted, "is encrypted with a passphrase"),
            (
                good.certificate, rsa.key, nil, rsa.key,
                "does not belong to the first certificate in \(good.certificate);"
            ),
            (
                rsa.certificate, weak.key, nil, weak.key,
                "does not belong to the first certificate in \(rsa.certificate);"
            ),
            (good.certificate, good.key, empty, empty, "holds no usable certificate authorities"),
            (pipe, good.key, nil, pipe, notPlain), (good.certificate, pipe, nil, pipe, notPlain),
            (good.certificate, good.key, pipe, pipe, notPlain), (good.certificate, good.key, missing, missing, noFile),
        ]
        for (certificate, key, authorities, file, expected) in cases {
            let text = problem(certificate, key, authorities) ?? ""
            #expect(text.hasPrefix("\(file) \(expected)"), "\(text)")
        }
        #expect(problem(weak.certificate, weak.key)?.contains("(OpenSSL: ee key too small)") == true)
        #expect(problem(good.certificate, good.key) == nil && problem(marked, good.key) == nil)
    }
}
