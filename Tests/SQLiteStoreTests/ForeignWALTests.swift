import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// A database and a WAL that do not belong together.
@Suite struct ForeignWALTests {
    private let folder = TemporaryDirectory()

    /// A folder as a crash leaves it: some tokens in the database, some in the WAL; and a backup.
    private func crashedStore() async throws -> String {
        let (live, crashed) = (folder.path + "/live", folder.path + "/crashed")
        let store = try SQLiteTokenStore(at: live)
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<50)
        try await store.perform { try $0.checkpoint() }
        await administrator.fill(50..<60)
        _ = try await administrator.backUp(to: folder.path + "/backup") { _ in }
        var hasCopy = false
        while !hasCopy {
            await administrator.fill(60..<70)
            // On the writer's thread, so that nothing is checkpointed meanwhile.
            hasCopy = try await store.perform { writer in
                guard let index = writer.connection.walIndex, index.frames > index.movedFrames else { return false }
                return (try? FileManager.default.copyItem(atPath: live, toPath: crashed)) != nil
            }
        }
        try FileManager.default.removeItem(atPath: crashed + "/lock")
        store.close()
        return crashed
    }

    private func options(_ directory: String) -> StoreOptions {
        StoreOptions(in: directory)
    }

    private func bytes(_ path: String) throws -> [UInt8] { [UInt8](try Data(contentsOf: URL(filePath: path))) }

    private func replace(_ path: String, by other: String) throws {
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.copyItem(atPath: other, toPath: path)
    }

    enum Cause: String, CaseIterable {
        case backupByHand, otherDatabase
    }

    @Test("a database and a WAL of another one are refused and not touched; a restore helps", arguments: Cause.allCases)
    func refusal(of cause: Cause) async throws {
        let data = try await crashedStore()
        let (database, wal) = (data + "/tokens.db", data + "/tokens.db-wal")
        switch cause {
        case .backupByHand: try replace(database, by: folder.path + "/backup")
        case .otherDatabase:
            let other = folder.path + "/other.db"
            try SQLiteConnection(path: other, mode: .readWriteCreate).execute("CREATE TABLE song (title)")
            try replace(database, by: other)
        }
        let before = (try bytes(database), try bytes(wal))
        let error = #expect(throws: SQLiteOpenError.foreignWAL(path: database)) {
            try SQLiteTokenStore(directory: data, options: options(data))
        }
        for part in [database + " and its WAL " + wal, "Nothing was changed", "token-cache restore"] {
            #expect(error?.description.contains(part) == true)
        }
        #expect(try bytes(database) == before.0 && bytes(wal) == before.1)
        if cause != .otherDatabase {
            let damage = try SQLiteStoreProvider(examining: data).examine()?.damage
            #expect(damage?.description.contains("do not belong together") == true)
        }
        #expect(try bytes(database) == before.0 && bytes(wal) == before.1)
        do {
            let offline = try OfflineSQLiteStore(directory: data, options: options(data))
            #expect(try offline.restore(folder.path + "/backup") { _ in }.tokens == 60)
        }
        let store = try SQLiteTokenStore(directory: data, options: options(data))
        #expect(try await SQLiteAdministrator(store).verify { _ in }.tokens == 60)
        store.close()
    }

    @Test func `a database whose WAL was left out of a copy is told, and a stopped server's is not`() async throws {
        let data = try await crashedStore()
        for isLeftOut in [true, false] {
            if isLeftOut { try FileManager.default.removeItem(atPath: data + "/tokens.db-wal") }
            let events = Events()
            try SQLiteTokenStore(at: data, events: events).close()
            #expect(events.all.contains { $0.says("there is no \(data)/tokens.db-wal") } == isLeftOut)
        }
    }

    @Test("a WAL without a commit keeps no database from being opened")
    func emptyWAL() async throws {
        let data = try await crashedStore()
        try replace(data + "/tokens.db", by: folder.path + "/backup")
        #expect(truncate(data + "/tokens.db-wal", 40) == 0)
        try SQLiteTokenStore(directory: data, options: options(data)).close()
    }
}
