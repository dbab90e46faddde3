import Foundation
import System
import TestSupport
import Testing

@testable import JWT

struct KeyFileTests {
    private let folder: TemporaryDirectory
    private var path: String { folder.path + "/jwks.json" }

    init() throws {
        folder = try TemporaryDirectory()
    }

    private func write(_ text: String) throws {
        // Replaces the file, as a renewal does.
        try Data(text.utf8).write(to: URL(filePath: path), options: .atomic)
    }

    private func file() throws(KeyFileError) -> JWTKeyFile {
        try JWTKeyFile(path) { path throws(KeyFileError) in try JWTVerifier(keysOf: path, Issuer.rules()) }
    }

    /// Why a server does not start with the file.
    private var refusal: String? {
        do throws(KeyFileError) {
            _ = try file()
            return nil
        } catch {
            return "\(error)"
        }
    }

    @Test func `new keys replace the old ones when the file changes`() throws {
        try write(Issuer.keySet([Issuer.p256.jwk(#","kid":"ec""#)]))
        let file = try file()
        let first = file.content
        #expect(first.rejection(Issuer.token()) == nil && !file.haveChanged)

        try write(Issuer.keySet([Issuer.stranger.jwk(#","kid":"ec""#), #"{"kty":"oct"}"#]))
        #expect(file.haveChanged)
        try file.reload()
        #expect(file.content.keys.count == 1 && file.content.keys.skipped.count == 1 && !file.haveChanged)
        #expect(file.content.rejection(Issuer.token()) == .signature)
        #expect(file.content.rejection(Issuer.token(by: Issuer.stranger)) == nil)
        // What was verified by the first verifier goes on by its keys.
        #expect(first.rejection(Issuer.token()) == nil)
    }

    @Test func `an unusable file leaves the previous keys in use`() throws {
        try write(Issuer.set)
        let file = try file()
        let verifier = file.content
        for (text, expected) in [
            ("{", "is not a JWK set"), (#"{"keys":[]}"#, "has no key"),
            (String(repeating: " ", count: (1 << 20) + 1), "has more than 1 MiB"),
        ] {
            try write(text)
            #expect(throws: KeyFileError.self) { try file.reload() }
            #expect(file.fault?.description.hasPrefix("\(path) \(expected)") == true && file.content === verifier)
        }
        try write(Issuer.set)
        try file.reload()
        #expect(file.fault == nil && file.content !== verifier)
    }

    @Test func `a start needs a usable file`() throws {
        #expect(refusal != nil)
        try write("[]")
        #expect(refusal?.contains("is not a JWK set") == true)
        // Some editors begin a file with a byte order mark.
        try write("\u{feff}" + Issuer.set)
        #expect(refusal == nil)
    }

    @Test func `a file that others may write to, or that is none, is refused`() throws {
        try write(Issuer.set)
        for mode: mode_t in [0o620, 0o602, 0o666] {
            chmod(path, mode)
            #expect(refusal?.contains("can be changed by other users") == true)
        }
        chmod(path, 0o644)
        #expect(refusal == nil)
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        #expect(refusal?.contains("cannot be read") == true)
        try FileManager.default.removeItem(atPath: path)
        // Without a writer, whom opening it would wait for.
        #expect(mkfifo(path, 0o600) == 0)
        #expect(refusal?.contains("cannot be read") == true)
    }
}
