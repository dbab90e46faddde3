import Foundation
import System
import TestSupport
import Testing

@testable import TokenService

@Suite struct APIKeysTests {
    private let folder = TemporaryDirectory()
    private var path: String { folder.path + "/api-keys" }

    private static let digest = String(repeating: "0a", count: 32)
    private static let line = #"{"name":"a","scopes":["sessions"],"sha256":"\#(digest)","created":5}"#

    /// Makes a key in the file; returns its secret.
    @discardableResult
    private func add(_ name: String, _ scopes: Set<APIScope> = [.sessions], expiresAt: Int64? = nil) throws -> String {
        let secret = APIKeySecret.random()
        let found = APIKeySecret.digest(of: Array(secret.utf8).span)
        let digest = try #require(found)
        try APIKeys.change(path, begins: true) {
            try $0.add(APIKey(name: name, scopes: scopes, createdAt: 5, expiresAt: expiresAt), digest: digest)
        }
        return secret
    }

    /// Why the file is not used; empty if it is.
    private func fault(_ body: () throws(KeyFileError) -> Void) -> String {
        do throws(KeyFileError) {
            try body()
            return ""
        } catch {
            #expect("\(error)".hasPrefix(path + " "))
            return "\(error)"
        }
    }

    private func find(_ text: String, in keys: APIKeys, at time: Int64 = 10) throws -> APIKeys.Lookup {
        keys.find(Array(text.utf8).span, at: time)
    }

    @Test func `a key is found by its secret, until it expires`() throws {
        let secret = try add("a.b-c_1", [.tokensRead, .erase])
        let other = try add("other", expiresAt: 20)
        let keys = try #require(try APIKeys.load(path))
        let key = APIKey(name: "a.b-c_1", scopes: [.erase, .tokensRead], createdAt: 5, expiresAt: nil)
        #expect(try find(secret, in: keys) == .found(key))
        let expiring = APIKey(name: "other", scopes: [.sessions], createdAt: 5, expiresAt: 20)
        #expect(try find(other, in: keys, at: 19) == .found(expiring))
        #expect(try find(other, in: keys, at: 20) == .expired)
        #expect(keys.all == [key, expiring])
    }

    @Test func `nothing but the secret itself finds a key`() throws {
        let secret = try add("a")
        let keys = try #require(try APIKeys.load(path))
        #expect(secret.hasPrefix("tck_") && secret.utf8.count == 47)
        var others = ["", "tck_", secret.uppercased(), secret + "=", " " + secret, secret + "\n"]
        others.append("tcs_" + secret.dropFirst(4))
        others += (0..<secret.count).map { String(secret.prefix($0)) }
        // Each byte changed in one bit.
        for index in secret.utf8.indices {
            var bytes = Array(secret.utf8)
            bytes[secret.utf8.distance(from: secret.startIndex, to: index)] ^= 1
            others.append(String(decoding: bytes, as: UTF8.self))
        }
        for text in others { #expect(try find(text, in: keys) == .unknown) }
        let text = try String(contentsOfFile: path, encoding: .utf8)
        #expect(!text.contains(secret) && !text.contains(secret.dropFirst(4)))
    }

    @Test func `a file keeps its keys, whatever their scopes`() throws {
        for bits in 1..<16 {
            let scopes = APIScope.allCases.enumerated().filter { bits >> $0.offset & 1 == 1 }.map(\.element)
            try add("key\(bits)", Set(scopes))
        }
        let keys = try #require(try APIKeys.load(path))
        #expect(keys.all.count == 15 && Set(keys.all.map(\.scopes)).count == 15)
        #expect(try APIKeysText.keys(of: APIKeysText.bytes(of: keys), "keys").entries == keys.entries)
        #expect(try FileStatus.read(path).permissions == "0600")
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["api-keys"])
    }

    @Test(arguments: [
        "nonsense", "{}", line + "x", line.replacing(":5", with: ":-5"), line.replacing(":5", with: ":5.0"),
        line.replacing(":5", with: #":"5""#), line.replacing(":5", with: #":5,"expires":null"#),
        line.replacing(":5", with: #":5,"expires":-1"#), line.replacing(":5", with: #":5,"expire":7"#),
        line.replacing(":5", with: #":5,"name":"b""#), line.replacing(#"["sessions"]"#, with: "[]"),
        line.replacing(#"["sessions"]"#, with: #"["sessions","all"]"#),
        line.replacing(#"["sessions"]"#, with: #"["sessions","sessions"]"#),
        line.replacing(#"["sessions"]"#, with: #""sessions""#), line.replacing(#""a""#, with: #""a b""#),
        line.replacing(#""0a0a"#, with: #""0a"#), line.replacing(#""sha256""#, with: #""sha512""#),
    ])
    func `the error names a line that is not a key, shows nothing of it, and says what a key is`(text: String) throws {
        let reason = """
            has a fault in line 3: it is not an API key in the form of `token-cache access keys add`: a JSON object with name (1 to \
            64 letters, digits, dots, - and _), scopes (some of sessions, tokens:read, tokens:write, erase), sha256 (64 \
            hexadecimal digits), created and perhaps expires (seconds since 1970), each of them once, and nothing else
            """
        #expect(throws: KeyFileError("keys", reason)) {
            _ = try APIKeysText.keys(of: Array("# a comment\n\n\(text)".utf8), "keys")
        }
    }

    @Test(arguments: [
        (line + "\n\n# more\n" + line, "line 4: an earlier key has the same name"),
        (line + "\n" + line.replacing(#""a""#, with: #""b""#), "line 2: an earlier key has the same secret"),
    ])
    func `a key that is there twice is an error`(text: String, reason: String) throws {
        #expect(throws: KeyFileError("keys", "has a fault in \(reason)")) {
            _ = try APIKeysText.keys(of: Array(text.utf8), "keys")
        }
    }

    @Test func `a changed file is read again, and a bad one leaves the keys as they are`() throws {
        #expect(
            fault { () throws(KeyFileError) in _ = try APIKeyFile(path, APIKeys.loadExisting) }.contains(
                "does not exist"))
        let secret = try add("a")
        let file = try APIKeyFile(path, APIKeys.loadExisting)
        let second = try add("b")
        #expect(try find(second, in: file.content) == .unknown)
        try file.reload()
        #expect(try find(second, in: file.content) != .unknown)
        try "nonsense".write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o600)
        #expect(fault { () throws(KeyFileError) in try file.reload() }.contains("line 1"))
        // What a write leaves for which the disk has no room.
        truncate(path, 0)
        #expect(fault { () throws(KeyFileError) in try file.reload() }.contains("is empty"))
        try FileManager.default.removeItem(atPath: path)
        #expect(fault { () throws(KeyFileError) in try file.reload() }.contains("does not exist"))
        #expect(try find(secret, in: file.content) != .unknown)
    }

    @Test func `a file that cannot be seen is not taken for a missing one`() throws {
        symlink(path, path)
        #expect(fault { () throws(KeyFileError) in _ = try APIKeys.load(path) }.contains("cannot be read"))
    }

    @Test func `a file without keys is not empty, so that the last key can be removed`() throws {
        try "".write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o600)
        #expect(
            fault { () throws(KeyFileError) in _ = try APIKeyFile(path, APIKeys.loadExisting) }.contains("is empty"))
        let secret = try add("a")
        let file = try APIKeyFile(path, APIKeys.loadExisting)
        try APIKeys.change(path) { _ = $0.remove(named: "a") }
        try file.reload()
        #expect(try find(secret, in: file.content) == .unknown)
        #expect(try text() == "# no keys\n")
        try add("b")
        #expect(try !text().contains("# no keys"))
    }

    @Test func `comments stay where they are, and only an added key begins a file`() throws {
        for missing in [true, false] {
            #expect(throws: KeyFileError.self) { try APIKeys.change(path) { _ = $0.remove(named: "a") } }
            if missing { try "".write(toFile: path, atomically: true, encoding: .utf8) }
        }
        try "# Jane's\n\(Self.line)\r\n\n# Joe's\n".write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o600)
        try add("b")
        #expect(try text().hasPrefix("# Jane's\n\(Self.line)\r\n# Joe's\n{"))
        #expect(try APIKeys.load(path)?.all.map(\.name) == ["a", "b"])
        try APIKeys.change(path) { keys in for name in ["a", "b"] { _ = keys.remove(named: name) } }
        #expect(try text() == "# Jane's\n# Joe's\n")
    }

    private func text() throws -> String { try String(contentsOfFile: path, encoding: .utf8) }

    @Test func `the names of keys that were added, removed and replaced are known`() throws {
        try add("kept")
        try add("removed")
        try add("replaced")
        let before = try #require(try APIKeys.load(path))
        try APIKeys.change(path) { keys in for name in ["removed", "replaced"] { _ = keys.remove(named: name) } }
        try add("added")
        try add("replaced")
        let after = try #require(try APIKeys.load(path))
        let changes = after.changes(since: before)
        #expect(changes.added == ["added", "replaced"] && changes.removed == ["removed", "replaced"])
        let none = after.changes(since: after)
        #expect(none.added.isEmpty && none.removed.isEmpty)
    }

    @Test func `a file that others may write to is refused`() throws {
        try add("a")
        for mode: mode_t in [0o620, 0o602, 0o666] {
            chmod(path, mode)
            #expect(
                fault { () throws(KeyFileError) in _ = try APIKeys.load(path) }.contains(
                    "can be changed by other users"))
        }
        chmod(path, 0o644)
        #expect(try APIKeys.load(path)?.all.count == 1)
    }

    @Test func `a change leaves the file to those who could read it`() throws {
        try add("a")
        let modes: [(mode_t, String)] = [(0o644, "0644"), (0o640, "0640"), (0o400, "0400"), (0o755, "0644")]
        for (before, after) in modes {
            chmod(path, before)
            try add("key\(before)")
            #expect(try FileStatus.read(path).permissions == after)
        }
    }

    @Test func `there may be 1000 keys, and no more`() throws {
        var keys = APIKeys()
        func add(_ number: Int) throws {
            let key = APIKey(name: "key\(number)", scopes: [.sessions], createdAt: 5, expiresAt: nil)
            try keys.add(key, digest: [UInt8(number >> 8), UInt8(number & 0xff)])
        }
        for number in 0..<1_000 { try add(number) }
        #expect(throws: APIKeys.AdditionError.tooMany) { try add(1_000) }
    }

    @Test func `keys that are made at once are all there`() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<20 { group.addTask { try self.add("key\(number)") } }
            try await group.waitForAll()
        }
        #expect(try APIKeys.load(path)?.all.count == 20)
    }

    @Test func `a change that fails leaves the file as it was, and a link where it is`() throws {
        let target = folder.path + "/target"
        try add("a")
        try FileManager.default.moveItem(atPath: path, toPath: target)
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
        let before = try Data(contentsOf: URL(filePath: target))
        #expect(throws: APIKeys.AdditionError.nameExists) { try add("a") }
        #expect(try Data(contentsOf: URL(filePath: target)) == before)
        try add("b")
        #expect(try FileStatus.read(path, followingLinks: false).isLink)
        #expect(try APIKeys.load(target)?.all.map(\.name) == ["a", "b"])
        #expect(try APIKeys.change(path) { $0.remove(named: "a")?.name } == "a")
        #expect(try APIKeys.load(path)?.all.map(\.name) == ["b"])
    }
}
