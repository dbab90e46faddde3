import Foundation
import StoreConformance
import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import SQLiteStore

/// How sessions and erased users fare apart from clients' requests.
@Suite struct SessionUpkeepTests {
    private let folder = TemporaryDirectory()
    private let events = Events()
    private var data: String { folder.path + "/data" }
    private var path: String { data + "/tokens.db" }

    private var backup: String { folder.path + "/backup.db" }

    private func open(_ change: (inout StoreOptions) -> Void = { _ in }) throws -> SQLiteTokenStore {
        try SQLiteTokenStore(at: data, events: events, change)
    }

    private func restore(keepsSessions: Bool = false) throws -> StoreReplacement {
        let offline = try OfflineSQLiteStore(directory: data, options: StoreOptions(in: data))
        return try offline.restore(backup, keepsSessions: keepsSessions, lacksKeys: false) { _ in }
    }

    @Test("a key can be retired as soon as its sessions are sealed with another one, and not before")
    func rekeying() async throws {
        let store = try open()
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        for number in 0..<450 { try await handle.begin("secret \(number)", of: "user \(number % 7)", perUser: 100) }
        let administrator = SQLiteAdministrator(store)
        _ = try await administrator.addKey()
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 1) }
        _ = try await administrator.walk { _ in }
        try await administrator.retireKey(numbered: 1)
        for number in 0..<450 {
            #expect(try await handle.find("secret \(number)")?.user == Array("user \(number % 7)".utf8))
        }
        #expect(try await administrator.verify { _ in }.isSound)
    }

    @Test("sessions that have expired or were not used for too long are removed, and an observer learns of it")
    func expiry() async throws {
        let store = try open { $0.retention.sessionIdleTimeout = .seconds(14_000) }
        defer { store.close() }
        let observer = WriteRecorder()
        store.report(writesTo: observer)
        let handle = try await WaitingHandle.open(store)
        let now = MemoryRow.now
        for number in 0..<300 {
            try await handle.begin("idle \(number)", of: "user \(number)", createdAt: now - 40_000, lasting: 100_000)
        }
        try await handle.begin("expired", of: "user 0", createdAt: now - 100, lasting: 50)
        try await handle.begin("used", of: "user 0", createdAt: now - 15_000, lasting: 100_000)
        try await handle.begin("unused", of: "user 0", createdAt: now - 15_000, lasting: 100_000)
        try await handle.begin("new", of: "user 1", lasting: 100_000)
        try await handle.use("used", at: now)
        try await handle.put("1", under: "a")
        _ = try await SQLiteAdministrator(store).walk { _ in }
        #expect(store.metrics.sessions == 2)
        #expect(try await handle.find("idle 299") == nil)
        #expect(try await handle.find("used") != nil)
        #expect(try await handle.find("new") != nil)
        #expect(try await handle.find("unused") == nil)
        #expect(observer.ended.withLock(\.count) == 302)
        let expired = try await handle.key("expired")
        #expect(observer.ended.withLock { $0.contains(expired) })
    }

    @Test(
        "a restore omits users erased after the backup, but not those that had come back, and ends sessions unless told",
        arguments: [true, false])
    func erasedUsers(_ keepsSessions: Bool) async throws {
        var store = try open()
        var handle = try await WaitingHandle.open(store)
        for user in ["anna", "berta", "clara"] {
            try await handle.put("info of \(user)", under: user)
            try await handle.begin("secret of \(user)", of: user)
        }
        let revoked = try await handle.begin("revoked", of: "berta")
        // A user may have only a session.
        try await handle.begin("secret of doris", of: "doris")
        try await handle.erase("clara")
        try await handle.put("again", under: "clara")
        _ = try await SQLiteAdministrator(store).backUp(to: backup) { _ in }
        try await handle.erase("anna")
        try await handle.erase("doris")
        _ = try await handle.endSession(id: revoked.id)
        let last = try await handle.put("later", under: "anna")
        store.close()
        let replacement = try restore(keepsSessions: keepsSessions)
        #expect(replacement.erasedUsers == 2)
        #expect(replacement.tokens == 2 && replacement.endedSessions == (keepsSessions ? 2 : 4))
        let database = try #require(FileManager.default.contents(atPath: path))
        store = try open()
        handle = try await WaitingHandle.open(store)
        #expect(try await handle.get("anna") == nil, "the backup's token was written before the erasure")
        #expect(try await handle.get("berta") == "info of berta")
        #expect(try await handle.get("clara") == "again", "it was written after the erasure")
        for user in ["anna", "doris"] { #expect(try await handle.list(user).isEmpty) }
        #expect(try await handle.list("berta").count == (keepsSessions ? 2 : 0))
        #expect(store.metrics.sessions == (keepsSessions ? 2 : 0))
        // Nothing of the row is left in the restored file.
        var coder = RowCoder(store.state.sealing)
        var key = RowKey()
        coder.key(of: Array("anna".utf8), into: &key)
        #expect(database.range(of: Data(key.bytes)) == nil)
        // A user who comes back after the restore is not removed by the next restore.
        #expect(try await handle.put("back", under: "anna") > last, "no version is given twice")
        _ = try await SQLiteAdministrator(store).backUp(to: backup) { _ in }
        store.close()
        #expect(try restore().erasedUsers == 0)
        store = try open()
        defer { store.close() }
        #expect(try await WaitingHandle.open(store).get("anna") == "back")
    }

    @Test("a line that a crash has cut off is dropped; a damaged line stops a restore, but no erasure")
    func erasuresFile() throws {
        let file = ErasuresFile(
            beside: StoreOptions(in: folder.path).keyRing, directory: folder.path)
        #expect(file.path == folder.path + "/erasures")
        #expect(try file.load() == nil)
        let (anna, berta) = (Array("anna".utf8), Array("berta".utf8))
        try file.append(anna, TokenVersion(rawValue: 100))
        let handle = try #require(FileHandle(forUpdatingAtPath: file.path))
        try handle.seekToEnd()
        try handle.write(contentsOf: Data("12345 00ff".utf8))
        #expect(try file.load()?.last == TokenVersion(rawValue: 100))
        try file.append(berta, TokenVersion(rawValue: 200))
        try file.append(anna, TokenVersion(rawValue: 300))
        let erasures = try #require(try file.load())
        #expect(erasures.last == TokenVersion(rawValue: 300))
        #expect(erasures.finds(anna, writtenAs: TokenVersion(rawValue: 299)))
        #expect(!erasures.finds(anna, writtenAs: TokenVersion(rawValue: 300)))
        #expect(erasures.finds(berta, writtenAs: TokenVersion(rawValue: 0)))
        #expect(!erasures.finds(Array("clara".utf8), writtenAs: TokenVersion(rawValue: 0)))
        let text = try String(contentsOfFile: file.path, encoding: .utf8)
        #expect(!text.contains("anna") && !text.contains("12345 "))
        let attributes = try FileManager.default.attributesOfItem(atPath: file.path)
        #expect(attributes[.posixPermissions] as? Int == 0o600)
        try handle.seekToEnd()
        try handle.write(contentsOf: Data("12345 00ff\n".utf8))
        #expect(throws: StoreError.self) { try file.load() }
        try file.append(anna, TokenVersion(rawValue: 400))
        #expect(throws: StoreError.self) { try file.load() }
    }

    @Test("a line is added at the end of a file of any length")
    func manyErasures() throws {
        let file = ErasuresFile(beside: StoreOptions(in: folder.path).keyRing, directory: folder.path)
        for user in UInt8(0)..<200 { try file.append([user], TokenVersion(rawValue: Int64(user))) }
        let erasures = try #require(try file.load())
        for user in UInt8(1)..<200 {
            #expect(erasures.finds([user], writtenAs: TokenVersion(rawValue: Int64(user) - 1)), "\(user)")
        }
    }

    @Test("the file of the erasures lies beside the key ring, or in the data folder")
    func placeOfErasures() {
        func path(_ ring: String, credentials: String? = nil) -> String {
            ErasuresFile(
                beside: KeyRingFile(path: ring, credentials: credentials, directory: "/data"), directory: "/data"
            ).path
        }
        #expect(path("") == "/data/erasures")
        #expect(path("/etc/token-cache/keys") == "/etc/token-cache/erasures")
        #expect(path("keys") == "./erasures")
        #expect(path("/etc/token-cache/ring") == "/etc/token-cache/ring.erasures")
        #expect(path("/run/credentials/a/token-cache.keys", credentials: "/run/credentials/a") == "/data/erasures")
    }

    @Test("a session's row that was changed or moved does not open")
    func tampering() async throws {
        let store = try open()
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        for user in ["anna", "berta"] { try await handle.begin("secret of \(user)", of: user) }
        for change in [
            "user_key = randomblob(32)", "id = randomblob(16)", "expires_at = expires_at + 1", "created_at = 5",
            "user = (SELECT user FROM former WHERE former.key != session.key)",
        ] {
            try await store.perform {
                try $0.connection.execute(
                    "CREATE TABLE former AS SELECT * FROM session; UPDATE session SET \(change)")
            }
            for user in ["anna", "berta"] {
                await #expect(throws: StoreError.self, "\(change)") { try await handle.find("secret of \(user)") }
            }
            #expect(try await !SQLiteAdministrator(store).verify { _ in }.isSound)
            try await store.perform {
                try $0.connection.execute(
                    "DELETE FROM session; INSERT INTO session SELECT * FROM former; DROP TABLE former")
            }
            #expect(try await handle.find("secret of anna")?.user == Array("anna".utf8))
        }
    }

    @Test("versions go on beyond the stored limit after a crash")
    func versionsAfterCrash() async throws {
        let store = try open()
        let handle = try await WaitingHandle.open(store)
        let last = try await handle.put("1", under: "a", if: .any)
        // What a power cut leaves: a copy of the files.
        let copy = folder.path + "/copy"
        try FileManager.default.copyItem(atPath: data, toPath: copy)
        store.close()
        let connection = try SQLiteConnection(path: copy + "/tokens.db", mode: .readWrite)
        let limit = try Schema.versionLimit(of: connection)
        #expect(limit >= last.rawValue)
        let again = try SQLiteTokenStore(at: copy)
        defer { again.close() }
        #expect(try await WaitingHandle.open(again).put("1", under: "b", if: .any).rawValue > limit)
    }
}
