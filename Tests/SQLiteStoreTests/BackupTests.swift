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

    @Test("an interrupted backup is replaced, and another program's file of that name stays", arguments: [true, false])
    func leftover(isBackup: Bool) async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        let (backup, partial) = (folder.path + "/backup.db", folder.path + "/backup.db.partial")
        try (isBackup ? Data(count: 100) : Data("notes".utf8)).write(to: URL(filePath: partial))
        if isBackup {
            _ = try await administrator.backUp(to: backup) { _ in }
            #expect(!FileManager.default.fileExists(atPath: partial))
        } else {
            await #expect(throws: StoreError.self) { try await administrator.backUp(to: backup) { _ in } }
            #expect(try String(contentsOfFile: partial, encoding: .utf8) == "notes")
        }
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
        _ = try await administrator.backUp(to: folder.path + "/backup.db") { _ in }
        #expect(BackupRecord(in: data) == nil)
        await administrator.recordBackup(isSuccessful: true)
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
}
