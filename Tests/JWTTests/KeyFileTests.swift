import Foundation
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

    private func problem(_ body: () throws(JWTKeyFileError) -> Void) -> JWTKeyFileError.Problem? {
        do throws(JWTKeyFileError) {
            try body()
            return nil
        } catch {
            #expect(error.file == path && error.description.hasPrefix(path))
            return error.problem
        }
    }

    @Test func `new keys replace the old ones when the file changes`() throws {
        try write(Issuer.keySet([Issuer.p256.jwk(#","kid":"ec""#)]))
        let file = try JWTKeyFile(path, rules: Issuer.rules())
        let first = file.verifier
        #expect(first.rejection(Issuer.token()) == nil)
        #expect(try file.reloadIfChanged() == nil)
        #expect(file.verifier === first)

        try write(Issuer.keySet([Issuer.stranger.jwk(#","kid":"ec""#), #"{"kty":"oct"}"#]))
        #expect(file.fileHasChanged)
        let keys = try #require(try file.reloadIfChanged())
        #expect(keys.count == 1 && keys.skipped.count == 1)
        #expect(!file.fileHasChanged)
        #expect(file.verifier.rejection(Issuer.token()) == .signature)
        #expect(file.verifier.rejection(Issuer.token(by: Issuer.stranger)) == nil)
        // What was verified by the first verifier goes on by its keys.
        #expect(first.rejection(Issuer.token()) == nil)
    }

    @Test func `an unusable file is reported once, and the previous keys stay`() throws {
        try write(Issuer.set)
        let file = try JWTKeyFile(path, rules: Issuer.rules())
        let verifier = file.verifier
        for (text, expected) in [
            ("{", .unusable(.notJSON)), (#"{"keys":[]}"#, .unusable(.noUsableKey([]))),
            (String(repeating: " ", count: (1 << 20) + 1), .tooLarge),
        ] as [(String, JWTKeyFileError.Problem)] {
            try write(text)
            #expect(problem { () throws(JWTKeyFileError) in _ = try file.reloadIfChanged() } == expected)
            #expect(problem { () throws(JWTKeyFileError) in _ = try file.reloadIfChanged() } == nil)
            #expect(file.verifier === verifier)
        }
        try FileManager.default.removeItem(atPath: path)
        guard case .unreadable = problem({ () throws(JWTKeyFileError) in _ = try file.reloadIfChanged() }) else {
            Issue.record("a missing file is unreadable")
            return
        }
        #expect(problem { () throws(JWTKeyFileError) in _ = try file.reloadIfChanged() } == nil)
        #expect(file.verifier === verifier)
        try write(Issuer.set)
        #expect(try file.reloadIfChanged() != nil)
        #expect(file.verifier !== verifier)
    }

    @Test func `a start needs a usable file`() throws {
        #expect(problem { () throws(JWTKeyFileError) in _ = try JWTKeyFile(path, rules: Issuer.rules()) } != nil)
        try write("[]")
        #expect(
            problem { () throws(JWTKeyFileError) in _ = try JWTKeyFile(path, rules: Issuer.rules()) }
                == .unusable(.notJSON)
        )
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        #expect(problem { () throws(JWTKeyFileError) in _ = try JWTKeyFile(path, rules: Issuer.rules()) } != nil)
    }

    @Test func `a pipe without a writer does not block`() throws {
        #expect(mkfifo(path, 0o600) == 0)
        #expect(
            problem { () throws(JWTKeyFileError) in _ = try JWTKeyFile(path, rules: Issuer.rules()) }
                == .unusable(.notJSON)
        )
    }

    @Test func `new rules are used when they are taken over, not before`() throws {
        try write(Issuer.set)
        let file = try JWTKeyFile(path, rules: Issuer.rules())
        let reading = try file.read(path, rules: Issuer.rules(issuer: "https://new.example.com"))
        #expect(file.verifier.rejection(Issuer.token()) == nil)
        file.use(reading)
        #expect(file.verifier.rejection(Issuer.token()) == .issuer)
        #expect(!file.fileHasChanged)
    }
}
