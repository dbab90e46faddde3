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

    @Test func `a backup has the indexes without which version 1.0 restores none`() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let names = ["session_by_expiration", "session_by_use"]
        try await store.perform { writer in
            for name in names { try writer.connection.execute("DROP INDEX IF EXISTS \(name)") }
        }
        _ = try await SQLiteAdministrator(store).backUp(to: folder.path + "/backup.db") { _ in }
        let backup = try SQLiteConnection(path: folder.path + "/backup.db", mode: .immutable)
        for name in names {
            #expect(try backup.integer("SELECT count(*) FROM sqlite_schema WHERE name = '\(name)'") == 1)
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

    @Test("the copy of the key ring beside a backup has every key that the backup needs")
    func copiedKeys() async throws {
        let first = try SQLiteTokenStore(at: data) { $0.isServing = false }
        var administrator = SQLiteAdministrator(first)
        await administrator.fill(0..<5)
        _ = try await administrator.addKey()
        await administrator.fill(5..<10)
        let file = first.options.keyRing
        first.close()
        let whole = try #require(try file.load())
        try file.save(whole.removingKey(numbered: 1))
        let keys = folder.path + "/safe"
        try FileManager.default.createDirectory(atPath: keys, withIntermediateDirectories: true)
        var store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        administrator = SQLiteAdministrator(store)
        _ = try await administrator.backUp(to: folder.path + "/b1", checks: true, keys: keys) { _ in }
        store.close()
        // The missing line is appended again, as the documents say.
        try file.save(whole)
        store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        administrator = SQLiteAdministrator(store)
        let backup = try await administrator.backUp(to: folder.path + "/b2", checks: true, keys: keys) { _ in }
        let copy = try #require(backup.keys?.first)
        #expect(try KeyRingFile(path: copy, credentials: nil, directory: "").load()?.keys.map(\.number) == [1, 2])
    }
}

@Suite struct DatabaseCopyTests {
    private let folder = TemporaryDirectory()

    /// A database of some thousand pages, far more than SQLite's cache of a copy has.
    private func source() throws -> SQLiteConnection {
        let source = try SQLiteConnection(path: folder.path + "/source", mode: .readWriteCreate)
        try source.execute(
            """
            CREATE TABLE page (id INTEGER PRIMARY KEY, number, value);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 4000)
            INSERT INTO page SELECT i, 1, randomblob(3000) FROM n
            """)
        return source
    }

    @Test func `a copy is the source as of its last step, whatever was written and removed meanwhile`() throws {
        let source = try source()
        let copying = try DatabaseCopy(of: source)
        var (bytes, left, turn, largest) = (Data(), 1, 0, 0)
        while left > 0 {
            let step = try copying.step(pages: 100)
            left = step.remaining
            bytes.count = max(bytes.count, step.part.size)
            try step.part.forEachPiece { piece, offset in
                bytes.replaceSubrange(offset..<offset + piece.count, with: piece)
                largest = max(largest, piece.count)
            }
            bytes.count = step.part.size
            guard left > 0 else { break }
            turn += 1
            try source.execute("UPDATE page SET number = number + 1 WHERE id % 7 = \(turn % 7) OR id = 1")
            if turn == 20 { try source.execute("DELETE FROM page WHERE id > 3500; VACUUM") }
        }
        #expect(turn > 20 && largest >= 64 << 10, "pages that follow one another are written together")
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["source"])
        try bytes.write(to: URL(filePath: folder.path + "/copy"))
        let copy = try SQLiteConnection(path: folder.path + "/copy", mode: .readOnly)
        #expect(try copy.text("PRAGMA integrity_check") == "ok")
        let digest = "SELECT group_concat(id || ':' || number || ':' || hex(value)) FROM page"
        #expect(try copy.text(digest) == source.text(digest))
    }

    @Test func `what waits for a disk that takes nothing is limited, and never an error of the source`() throws {
        let source = try source()
        try source.execute("INSERT INTO page VALUES (5000, 1, zeroblob(40 << 20))")
        let copying = try DatabaseCopy(of: source)
        // Most of the pages are taken, and then no more.
        while try copying.step(pages: 1_000).remaining > 1_000 {}
        try source.execute("UPDATE page SET value = zeroblob(39 << 20) WHERE id = 5000")
        #expect {
            _ = try copying.step(pages: 1)
        } throws: {
            "\($0)".contains("32 MiB of the store have changed")
        }
        #expect(try source.text("PRAGMA integrity_check") == "ok")
    }
}
