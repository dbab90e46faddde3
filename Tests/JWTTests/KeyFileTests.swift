import Foundation
import System
import TestSupport
import Testing
import TokenService

@testable import JWT

struct KeyFileTests {
    private let folder = TemporaryDirectory()
    private var path: String { folder.path + "/jwks.json" }

    private func write(_ text: String) throws {
        // Replaces the file, as a renewal does.
        try Data(text.utf8).write(to: URL(filePath: path), options: .atomic)
    }

    private func file() throws(KeyFileError) -> JWTKeyFile {
        try JWTKeyFile(path) { path throws(KeyFileError) in
            VerifiedTokens(try JWTVerifier(keysOf: path, Issuer.rules()))
        }
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
