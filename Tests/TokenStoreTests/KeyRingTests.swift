import Cryptography
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import TokenStore

@Suite struct KeyRingTests {
    private let folder = TemporaryDirectory()

    private func file(_ name: String = "keys", credentials: String? = nil) -> KeyRingFile {
        KeyRingFile(path: "\(folder.path)/\(name)", credentials: credentials, directory: folder.path)
    }

    private func write(_ text: String, mode: Int = 0o600) throws -> KeyRingFile {
        try Data(text.utf8).write(to: URL(filePath: file().path))
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: file().path)
        return file()
    }

    private static let key = String(repeating: "0123456789abcdeF", count: 4)

    @Test("a ring is written for its owner alone and read as it was")
    func savingAndLoading() throws {
        let ring = try KeyRing.random(createdAt: 5).addingKey(createdAt: 6)
        try file().save(ring)
        let mode = try FileManager.default.attributesOfItem(atPath: file().path)[.posixPermissions] as? Int
        #expect(mode == 0o600)
        let found = try #require(try file().load())
        #expect(found.keys.map(\.number) == [1, 2])
        #expect(found.keys.map(\.createdAt) == [5, 6])
        #expect(KeyRingText.bytes(of: found) == KeyRingText.bytes(of: ring))
        #expect(found.identity() == ring.identity())
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["keys"])
    }

    @Test("the newest key seals, unless another one is named")
    func activeKey() throws {
        let ring = try KeyRing.random(createdAt: 1).addingKey(createdAt: 2).addingKey(createdAt: 3)
        #expect(ring.active.number == 3)
        #expect(ring.activating(2).active.number == 2)
        #expect(ring.activating(2).newest.number == 3)
        #expect(ring.activating(2).removingKey(numbered: 1).active.number == 2)
        #expect(try ring.activating(1).addingKey(createdAt: 4).active.number == 4)

        let sealing = Sealing(ring.activating(2))
        var coder = RowCoder(sealing)
        let token = Token(id: Array("id".utf8), info: Array("info".utf8))
        let row = try coder.row(of: token)
        #expect(row.keyNumber == 2)
        // Servers that seal with another key open it, too.
        var other = RowCoder(Sealing(ring))
        let opened = try other.token(of: row.value.span, keyNumber: 2, key: row.key.bytes, times: row.times)
        #expect(opened.info == token.info)
        #expect(other.activeKeyNumber() == 3)
        // Rows still open while nothing may be sealed.
        sealing.refuse("for a reason")
        #expect(throws: SealingError.refused("for a reason")) { try coder.row(of: token) }
        let found = try coder.token(of: row.value.span, keyNumber: 2, key: row.key.bytes, times: row.times)
        #expect(found.info == token.info)
        sealing.refuse(nil)
        #expect(try coder.row(of: token).keyNumber == 2)
    }

    @Test("a fingerprint has two digits for each of the first eight bytes")
    func fingerprint() {
        #expect(KeyRing.fingerprint([0, 9, 15, 16, 17, 160, 255, 1, 2]) == "00090f1011a0ff01")
    }

    @Test("a key's fingerprint is the same wherever the key is, and tells it from every other key")
    func keyFingerprint() throws {
        let key = SecretKey([UInt8](repeating: 7, count: 32).span)
        let ring = KeyRing(index: key, keys: (1...2).map { .init(number: $0, createdAt: Int64($0), key: key) })
        // HMAC-SHA256 with the key, of "token-cache sealing key".
        #expect(ring.keys.map { $0.fingerprint() } == ["7ac00b8ec73dc65e", "7ac00b8ec73dc65e"])
        let others = (0..<2).map { _ in KeyRing.random(createdAt: 1).newest.fingerprint() }
        #expect(others[0] != others[1])
    }

    @Test("a missing file is no ring, a new one has other keys")
    func missing() throws {
        #expect(try file("none").load() == nil)
        #expect(KeyRing.random(createdAt: 1).identity() != KeyRing.random(createdAt: 1).identity())
    }

    @Test("a byte order mark, comments, blank lines, blanks and the order of lines do not matter")
    func leniency() throws {
        let ring = try #require(
            try write("\u{feff}# a\n\n 2\t7  \(Self.key)\r\n1 6 \(Self.key)\n\nindex \(Self.key)").load())
        #expect(ring.keys.map(\.number) == [1, 2])
        #expect(ring.newest.createdAt == 7)
        let digits = try #require(String(bytes: KeyRingText.bytes(of: ring), encoding: .utf8))
        #expect(digits.components(separatedBy: Self.key.lowercased()).count == 4)
    }

    @Test(
        "a malformed ring is refused with its line and the reason, and without any of its keys",
        arguments: [
            ("1 1 KEY\n", 0, "the index key is missing"),
            ("index KEY\n", 0, "there is no numbered key"),
            ("index KEY\nindex KEY\n1 1 KEY", 2, "there are two index keys"),
            ("index KEY\n1 1 KEY\n1 2 KEY", 3, "there are two keys with the number 1"),
            ("index KEY0\n1 1 KEY", 1, "expected: index KEY, the key in 64 hexadecimal digits"),
            ("index xKEY\n1 1 KEY", 1, "expected: index KEY, the key in 64 hexadecimal digits"),
            ("index KEY\n0 1 KEY", 2, "expected: NUMBER SECONDS KEY, the key in 64 hexadecimal digits"),
            ("index KEY\n+1 1 KEY", 2, "expected: NUMBER SECONDS KEY, the key in 64 hexadecimal digits"),
            ("index KEY\n1 +1 KEY", 2, "expected: NUMBER SECONDS KEY, the key in 64 hexadecimal digits"),
            ("index KEY\n1 KEY", 2, "expected: NUMBER SECONDS KEY, the key in 64 hexadecimal digits"),
            ("index KEY\n1 1 KEY binds", 2, "expected: NUMBER SECONDS KEY, the key in 64 hexadecimal digits"),
            ("index KEY\n1 1 KEY KEY", 2, "expected: NUMBER SECONDS KEY, the key in 64 hexadecimal digits"),
        ]
    )
    func malformed(_ text: String, _ line: Int, _ reason: String) throws {
        let file = try write(text.replacing("KEY", with: Self.key))
        #expect(throws: KeyRingError.malformed(path: file.path, line: line, reason: reason)) { try file.load() }
        do {
            _ = try file.load()
        } catch {
            #expect(!error.description.contains("0123456789abcde"))
        }
    }

    @Test("a credential that cannot be reached is not taken for a missing one")
    func unreachableCredential() throws {
        let link = "\(folder.path)/\(KeyRingFile.credentialName)"
        #expect(symlink(link, link) == 0)
        let credential = KeyRingFile(path: "", credentials: folder.path, directory: folder.path)
        #expect(credential.isCredential && credential.path == link)
        #expect(throws: KeyRingError.self) { try credential.load() }
        #expect(!KeyRingFile(path: "", credentials: "\(folder.path)/none", directory: folder.path).isCredential)
    }

    @Test("a ring that others can read is refused, but not a credential of systemd's")
    func permissions() throws {
        let text = "index \(Self.key)\n1 1 \(Self.key)\n"
        for mode in [0o640, 0o604, 0o660] {
            let file = try write(text, mode: mode)
            #expect(throws: KeyRingError.open(path: file.path, mode: UInt32(mode))) { try file.load() }
        }
        _ = try write(text, mode: 0o440)
        let credential = file(credentials: folder.path)
        #expect(credential.isCredential)
        #expect(try credential.load() != nil)
        #expect(throws: KeyRingError.credential(path: credential.path)) {
            try credential.save(KeyRing.random(createdAt: 1))
        }
    }

    @Test("the file is the one of the settings, otherwise the credential, otherwise one in the data directory")
    func place() throws {
        let name = "\(folder.path)/\(KeyRingFile.credentialName)"
        #expect(KeyRingFile(path: "/a", credentials: folder.path, directory: "/d").path == "/a")
        #expect(KeyRingFile(path: "", credentials: folder.path, directory: "/d").path == "/d/keys")
        try Data().write(to: URL(filePath: name))
        #expect(KeyRingFile(path: "", credentials: folder.path, directory: "/d").path == name)
        #expect(KeyRingFile(path: "", credentials: nil, directory: "/d").path == "/d/keys")
    }

    @Test("a key is kept once, and a file in that place without this key is refused")
    func kept() throws {
        let ring = KeyRing.random(createdAt: 1)
        try file().save(ring)
        for _ in 1...2 { _ = try file().keep(ring.newest) }
        let kept = file("keys.retired-1-\(ring.newest.fingerprint())")
        #expect(try #require(try kept.load()).newest.key.hasBytes(of: ring.newest.key))
        try kept.save(.random(createdAt: 1))
        #expect(throws: KeyRingError.exists(path: kept.path)) { _ = try file().keep(ring.newest) }
    }

    @Test("retired numbers are not used again while a later key is there")
    func numbers() throws {
        let ring = try KeyRing.random(createdAt: 1).addingKey(createdAt: 2).removingKey(numbered: 1)
        #expect(ring.keys.map(\.number) == [2])
        #expect(try ring.addingKey(createdAt: 3).newest.number == 3)
    }
}

@Suite struct KeyRingChoiceTests {
    @Test func `processes that make a ring at the same path at once get the same one`() async throws {
        for _ in 0..<20 {
            let folder = TemporaryDirectory()
            let file = KeyRingFile(path: folder.path + "/shared", credentials: nil, directory: folder.path)
            let outcomes = try await withThrowingTaskGroup(of: (identity: [UInt8], isNew: Bool).self) { group in
                for _ in 0..<8 {
                    group.addTask {
                        let chosen = try file.ring(fitting: [], isEmpty: true, of: "")
                        return (chosen.identity, chosen.isNew)
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            let kept = try #require(try file.load()).identity()
            #expect(outcomes.allSatisfy { $0.identity == kept })
            #expect(outcomes.count(where: \.isNew) == 1)
        }
    }

    @Test func `making a ring beforehand never replaces one that a server makes at the same moment`() async throws {
        for _ in 0..<50 {
            let folder = TemporaryDirectory()
            let file = KeyRingFile(path: folder.path + "/shared", credentials: nil, directory: folder.path)
            let identities = try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        try file.ring(fitting: [], isEmpty: true, of: "").identity
                    }
                    group.addTask {
                        do throws(KeyRingError) {
                            try file.create()
                        } catch {
                            guard case .exists = error else { throw error }
                        }
                        return nil
                    }
                }
                var identities: [[UInt8]] = []
                for try await identity in group {
                    if let identity { identities.append(identity) }
                }
                return identities
            }
            let kept = try #require(try file.load()).identity()
            #expect(identities == [[UInt8]](repeating: kept, count: 4))
        }
    }
}
