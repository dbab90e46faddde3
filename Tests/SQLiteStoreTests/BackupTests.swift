import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct BackupTests {
    private let folder: TemporaryDirectory
    private let data: String

    init() throws {
        folder = try TemporaryDirectory()
        data = folder.path + "/data"
    }

    @Test("a backup is the store as of one moment, and can be restored; what came later is gone then")
    func backup() async throws {
        let path = folder.path + "/backup.db"
        let store = try SQLiteTokenStore(at: data)
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<3_000)
        let seen = Mutex(StoreProgress(done: 0, total: 0))
        let writing = Task { [administrator] in
            for number in 3_000..<3_050 { await administrator.fill(number..<(number + 1)) }
        }
        let backup = try await administrator.backUp(to: path) { progress in seen.withLock { $0 = progress } }
        await writing.value
        let last = seen.withLock(\.self)
        #expect(backup.tokens >= 3_000 && last.total > 0 && last.done == last.total)
        await administrator.fill(4_000..<4_100)
        store.close()
        #expect(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o600)
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        let replacement = try OfflineSQLiteStore(directory: data, options: options) { _ in }
        #expect(try replacement.restore(path) { _ in }.tokens == backup.tokens)
        _ = consume replacement
        options.isSealed = true
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        let restored = SQLiteAdministrator(again)
        #expect(try await restored.info("id2999") == "info2999")
        #expect(try await restored.info("id4000") == nil)
        #expect(try await restored.verify { _ in }.isSound)
    }

    @Test("the last backup is remembered with its outcome, and when one succeeded last")
    func records() async throws {
        let store = try SQLiteTokenStore(at: data)
        let administrator = SQLiteAdministrator(store)
        try FileManager.default.createDirectory(atPath: folder.path + "/folder", withIntermediateDirectories: true)
        // A mistyped path is no failed backup.
        for path in ["/folder", "/none/backup.db", "/data/keys"] {
            await #expect(throws: StoreError.self) { try await administrator.backUp(to: folder.path + path) { _ in } }
        }
        #expect(BackupRecord(in: data) == nil)
        _ = try await administrator.backUp(to: folder.path + "/backup.db", isRecorded: true) { _ in }
        #expect(BackupRecord(in: data)?.isSuccessful == true && BackupRecord(in: data)?.successTime != nil)
        // More than one step of a copy, after which it looks whether it was interrupted.
        let large = (token: Token(id: [1], info: [UInt8](repeating: 1, count: 3 << 20)), writtenAt: Int64?.none)
        for outcome in await administrator.store([large], keepsNewer: false) { try outcome.get() }
        let task = Task { [path = folder.path + "/backup.db"] in try await administrator.backUp(to: path) { _ in } }
        task.cancel()
        await #expect(throws: StoreError.self) { try await task.value }
        #expect(BackupRecord(in: data)?.isSuccessful == false && BackupRecord(in: data)?.successTime != nil)
        store.close()
    }

    @Test("a backup takes the place of a database that cannot be read any more")
    func damagedDatabase() async throws {
        let path = folder.path + "/backup.db"
        let store = try SQLiteTokenStore(at: data)
        await SQLiteAdministrator(store).fill(0..<3)
        _ = try await SQLiteAdministrator(store).backUp(to: path) { _ in }
        store.close()
        try Data(repeating: 0xff, count: 8_192).write(to: URL(filePath: data + "/tokens.db"))
        let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        #expect(try OfflineSQLiteStore(directory: data, options: options) { _ in }.restore(path) { _ in }.tokens == 3)
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        #expect(try await SQLiteAdministrator(again).info("id1") == "info1")
    }

    @Test("what cannot be restored leaves the store as it was")
    func refusedRestores() async throws {
        let first = try SQLiteTokenStore(at: data)
        await SQLiteAdministrator(first).fill(0..<3)
        first.close()
        let other = try SQLiteTokenStore(at: folder.path + "/other")
        await SQLiteAdministrator(other).fill(0..<2_000)
        _ = try await SQLiteAdministrator(other).backUp(to: folder.path + "/sealed otherwise") { _ in }
        other.close()
        try Data("no database".utf8).write(to: URL(filePath: folder.path + "/text"))
        try SQLiteConnection(path: folder.path + "/foreign", mode: .readWriteCreate).execute("CREATE TABLE t (a)")
        var damaged = try Data(contentsOf: URL(filePath: data + "/tokens.db"))
        damaged.replaceSubrange(4_096..<8_192, with: Data(repeating: 0xff, count: 4_096))
        try damaged.write(to: URL(filePath: folder.path + "/damaged"))
        try Data().write(to: URL(filePath: folder.path + "/empty"))
        for name in ["none", "empty", "text", "foreign", "damaged", "sealed otherwise"] {
            let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
            let replacement = try OfflineSQLiteStore(directory: data, options: options) { _ in }
            do throws(StoreError) {
                _ = try replacement.restore(folder.path + "/" + name) { _ in }
                Issue.record("\(name) was restored")
            } catch {
                #expect(error.description.contains(folder.path + "/" + name) || name == "sealed otherwise", "\(error)")
                #expect(error.description.contains("is empty") == (name == "empty"), "\(error)")
            }
        }
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        #expect(try await SQLiteAdministrator(store).info("id1") == "info1")
        #expect(
            Set(try FileManager.default.contentsOfDirectory(atPath: data)).isSubset(
                of: ["keys", "lock", "tokens.db", "tokens.db-wal"]))
    }
}
