import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct BackupTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }

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
        // Copying this takes several steps; after each the backup checks whether it was cancelled.
        let large = (token: Token(id: [1], info: [UInt8](repeating: 1, count: 3 << 20)), writtenAt: Int64?.none)
        for outcome in await administrator.handle.store([large], keepsNewer: false) { try outcome.get() }
        let task = Task { [path = folder.path + "/backup.db"] in
            // However late the cancellation comes, the backup must not be over before.
            while !Task.isCancelled { await Task.yield() }
            return try await administrator.backUp(to: path) { _ in }
        }
        task.cancel()
        await #expect(throws: StoreError.self) { try await task.value }
        #expect(BackupRecord(in: data)?.isSuccessful == false && BackupRecord(in: data)?.successTime != nil)
        store.close()
    }
}

@Suite struct DatabaseCopyTests {
    @Test("a copy has no journal of its own, as it is thrown away after an error")
    func journal() throws {
        let folder = TemporaryDirectory()
        let source = try SQLiteConnection(path: folder.path + "/source", mode: .readWriteCreate)
        try source.execute("CREATE TABLE page (number, value); INSERT INTO page VALUES (1, zeroblob(100000))")
        let copy = folder.path + "/copy"
        #expect(FileManager.default.createFile(atPath: copy, contents: nil))
        var files: Set<String> = []
        do {
            let copying = try DatabaseCopy(of: source, to: copy)
            while try copying.step(pages: 5).remaining > 0 {
                files.formUnion(try FileManager.default.contentsOfDirectory(atPath: folder.path))
                try source.execute("UPDATE page SET number = number + 1")
            }
        }
        #expect(files == ["source", "copy"])
        let result = try SQLiteConnection(path: copy, mode: .readOnly).text("PRAGMA integrity_check")
        #expect(result == "ok")
        #expect(try SQLiteConnection(path: copy, mode: .readOnly).integer("SELECT number FROM page") > 1)
    }
}
