import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct BackupVerifierTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }
    private var path: String { data + "/tokens.db" }
    private var backup: String { folder.path + "/backup" }

    init() throws {
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
    }

    private func verify() throws(StoreError) -> BackupVerification {
        try SQLiteStoreProvider(examining: data).verify(backup) { _ in }
    }

    /// Makes a backup of a store with some tokens.
    private func makeBackup(_ count: Int) async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<count)
        _ = try await administrator.backUp(to: backup) { _ in }
    }

    @Test func `every row of a backup is opened`() async throws {
        try await makeBackup(1_500)
        let found = try verify()
        #expect((found.tokens, found.isSound) == (1_500, true))
        #expect(found.lastWrittenAt != nil)
    }

    @Test func `a row that does not open is found, and a row that is missing`() async throws {
        try await makeBackup(10)
        let connection = try SQLiteConnection(path: backup, mode: .readWrite)
        try connection.execute("UPDATE token SET value = zeroblob(60) WHERE slot = (SELECT min(slot) FROM token)")
        var found = try verify()
        #expect((found.tokens, found.isSound) == (10, false))
        #expect(found.unreadable.values.reduce(0, +) == 1)
        try connection.execute("DELETE FROM token WHERE slot = (SELECT min(slot) FROM token)")
        found = try verify()
        #expect(found.unreadable.isEmpty && !found.isSound)
        #expect(found.damages == ["the store has counted 10 tokens, but 9 are there"])
    }

    @Test(
        "a backup that a verification finds damaged is not restored, and of such a store no backup is made",
        arguments: ["DELETE FROM token WHERE slot = (SELECT min(slot) FROM token)", "DROP INDEX session_by_user"])
    func damagedStructure(_ change: String) async throws {
        try await makeBackup(10)
        try SQLiteConnection(path: backup, mode: .readWrite).execute(change)
        #expect(try !verify().isSound)
        #expect(throws: StoreError.self) {
            try OfflineSQLiteStore(directory: data, options: StoreOptions(in: data)).restore(backup) { _ in }
        }
        try SQLiteConnection(path: path, mode: .readWrite).execute(change)
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        #expect(try await !administrator.verify { _ in }.isSound)
        await #expect(throws: StoreError.self) { try await administrator.backUp(to: backup) { _ in } }
    }

    @Test func `all sessions are read, more than are read of one state as well`() async throws {
        try await makeBackup(1)
        try SQLiteConnection(path: backup, mode: .readWrite).execute(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2500)
            INSERT INTO session SELECT randomblob(32), randomblob(16), x'61', i, 0, 0, 0, 1, zeroblob(60) FROM n
            """
        )
        let found = try verify()
        #expect(found.sessions == 2_500 && found.unreadable.values.reduce(0, +) == 2_500)
    }

    @Test(
        "a definition with which the store could not be opened is found",
        arguments: [
            // SQLite refuses it only where it may write.
            ("CHECK (one = 1)", "CHECK (two = 1)"),
            // Reading rows uses none of these.
            ("version_limit INTEGER", "version_limiu INTEGER"),
        ])
    func definitions(_ original: String, _ damaged: String) async throws {
        try await makeBackup(10)
        var bytes = try Data(contentsOf: URL(filePath: backup))
        let place = try #require(bytes.range(of: Data(original.utf8)))
        bytes.replaceSubrange(place, with: Data(damaged.utf8))
        try bytes.write(to: URL(filePath: backup))
        let found = try verify()
        #expect(found.damages == ["the definitions of its tables are damaged"])
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.moveItem(atPath: backup, toPath: path)
        #expect(throws: SQLiteOpenError.self) { try SQLiteTokenStore(at: data) }
    }

    @Test func `without the key ring nothing is verified, and no ring is made`() async throws {
        try await makeBackup(10)
        try FileManager.default.removeItem(atPath: data + "/keys")
        #expect { try verify() } throws: { "\($0)".contains("is missing") }
        #expect(!FileManager.default.fileExists(atPath: data + "/keys"))
        let other = try SQLiteTokenStore(at: folder.path + "/other")
        await SQLiteAdministrator(other).fill(0..<1)
        other.close()
        try FileManager.default.copyItem(atPath: folder.path + "/other/keys", toPath: data + "/keys")
        #expect { try verify() } throws: { "\($0)".contains("is not the one that the store was sealed with") }
    }

    @Test func `an empty backup of a store in the clear needs no key`() async throws {
        try await makeBackup(0)
        try SQLiteConnection(path: backup, mode: .readWrite).execute("UPDATE store SET key_ring = NULL")
        try FileManager.default.removeItem(atPath: data + "/keys")
        #expect(try verify().isSound)
        #expect(!FileManager.default.fileExists(atPath: data + "/keys"))
    }
}
