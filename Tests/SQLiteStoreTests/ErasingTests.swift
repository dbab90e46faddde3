import Foundation
import StoreConformance
import TestSupport
import Testing
import TokenStore

@testable import SQLiteStore

@Suite struct ErasingTests {
    private let folder = TemporaryDirectory()
    private let events = Events()

    private var data: String { folder.path + "/data" }

    /// The contents of all files of the data folder, by their names.
    private func files() throws -> [String: Data] {
        var files: [String: Data] = [:]
        for name in try FileManager.default.contentsOfDirectory(atPath: data) {
            files[name] = FileManager.default.contents(atPath: data + "/" + name)
        }
        return files
    }

    @Test("nothing of an erased user is in any file, also not of a token of many pages")
    func nothingIsLeft() async throws {
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        for user in ["anna@example.com", "berta@example.com"] {
            let long = String(repeating: "canary of \(user) ", count: 2_000)
            try await handle.put("token of \(user) \(long)", under: user)
            for number in 0..<3 { try await handle.begin("secret \(number) of \(user)", of: user) }
        }
        // What the rows hold: hashes and sealed values.
        let anna = Array("anna@example.com".utf8)
        var coder = RowCoder(store.state.sealing)
        var key = RowKey()
        coder.key(of: anna, into: &key)
        let userKey = key.bytes
        let held = try await store.perform { writer -> [[UInt8]] in
            var held = [userKey]
            let tokens = try SQLiteStatement("SELECT key, value FROM token", on: writer.connection)
            while try tokens.step() { if tokens.blob(at: 0) == userKey { held.append(tokens.blob(at: 1)) } }
            let sessions = try SQLiteStatement("SELECT user_key, key, id, user FROM session", on: writer.connection)
            while try sessions.step() {
                guard sessions.blob(at: 0) == userKey else { continue }
                held += [1, 2, 3].map { sessions.blob(at: $0) }
            }
            return held
        }
        #expect(held.count == 11)
        let texts = Set(held.flatMap { [Array($0.prefix(24)), Array($0.suffix(24))] }).filter { $0.count >= 16 }
        func found() throws -> [[UInt8]] {
            let contents = try files().values
            return texts.filter { text in contents.contains { $0.range(of: Data(text)) != nil } }
        }
        try await store.perform { try $0.checkpoint(waiting: 200) }
        #expect(try !found().isEmpty)
        #expect(try await handle.erase("anna@example.com") == Erasure(hadToken: true, sessions: 3))
        #expect(try found().isEmpty)
        #expect(try !files().values.contains { $0.range(of: Data("canary of anna".utf8)) != nil })
        #expect(try await handle.get("berta@example.com")?.hasPrefix("token of berta") == true)
        let verification = try await SQLiteAdministrator(store).verify { _ in }
        #expect(verification.isSound && verification.tokens == 1)
    }

    @Test func `a user whose row does not open at a restore does not come back with its key`() async throws {
        let (backup, keys) = (folder.path + "/backup", data + "/keys")
        let store = try SQLiteTokenStore(at: data)
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "anna")
        let early = try #require(FileManager.default.contents(atPath: keys))
        _ = try await SQLiteAdministrator(store).addKey()
        try await handle.put("2", under: "berta")
        _ = try await SQLiteAdministrator(store).backUp(to: backup) { _ in }
        let whole = try #require(FileManager.default.contents(atPath: keys))
        try await handle.erase("berta")
        store.close()
        try early.write(to: URL(filePath: keys))
        let found = try OfflineSQLiteStore(directory: data, options: StoreOptions(in: data))
            .restore(backup, keepsSessions: false, lacksKeys: true) { _ in }
        #expect(found.tokens == 1 && found.omittedUnreadable == 1 && found.unreadable == 0)
        try whole.write(to: URL(filePath: keys))
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        #expect(try await WaitingHandle.open(again).get("berta") == nil)
        #expect(try await WaitingHandle.open(again).get("anna") == "1")
    }

    @Test func `a store knows how many users were erased, and says so if their file is missing`() async throws {
        var store = try SQLiteTokenStore(at: data, events: events)
        let (file, backup, path) = (data + "/erasures", folder.path + "/backup", data + "/tokens.db")
        for user in ["anna", "berta"] { try await WaitingHandle.open(store).erase(user) }
        #expect(try await SQLiteAdministrator(store).verify { _ in }.missingErasures == 0)
        _ = try await SQLiteAdministrator(store).backUp(to: backup) { _ in }
        try await WaitingHandle.open(store).erase("anna")
        store.close()
        try FileManager.default.moveItem(atPath: file, toPath: file + ".kept")
        #expect(try SQLiteStoreProvider(examining: data).verify(backup) { _ in }.missingErasures == 2)
        store = try SQLiteTokenStore(at: data, events: events)
        #expect(events.all.contains(.erasuresMissing(count: 3)))
        #expect(try await SQLiteAdministrator(store).verify { _ in }.missingErasures == 3)
        store.close()
        var offline = try OfflineSQLiteStore(directory: data, options: StoreOptions(in: data))
        #expect(try offline.restore(backup) { _ in }.missingErasures == 3)
        offline.directory.unlock()
        // The restored store knows of those that the replaced one has known of.
        #expect(Schema.erasures(of: try SQLiteConnection(path: path, mode: .readOnly)) == 3)
        try FileManager.default.moveItem(atPath: file + ".kept", toPath: file)
        offline = try OfflineSQLiteStore(directory: data, options: StoreOptions(in: data))
        #expect(try offline.restore(backup) { _ in }.missingErasures == 0)
        offline.directory.unlock()
        // A store of version 1.0 has not counted them.
        try SQLiteConnection(path: path, mode: .readWrite).execute("DROP TABLE erasure")
        let later = Events()
        try SQLiteTokenStore(at: data, events: later).close()
        #expect(!later.all.contains { if case .erasuresMissing = $0 { true } else { false } })
        #expect(Schema.erasures(of: try SQLiteConnection(path: path, mode: .readOnly)) == 3)
    }

    @Test("the copy of a damaged WAL goes with a user, and what an interrupted backup has left with the next start")
    func copies() async throws {
        do {
            let store = try SQLiteTokenStore(at: data, events: events)
            defer { store.close() }
            let handle = try await WaitingHandle.open(store)
            try await handle.put("info", under: "anna")
            try await store.perform { try $0.checkpoint(waiting: 200) }
            let manager = FileManager.default
            for name in ["tokens.db-wal.damaged", "backup.db.partial"] {
                try manager.copyItem(atPath: data + "/tokens.db", toPath: "\(data)/\(name)")
            }
            try Data("anna".utf8).write(to: URL(filePath: data + "/notes.partial"))
            try await handle.erase("anna")
            #expect(try Set(files().keys).isDisjoint(with: ["tokens.db-wal.damaged"]))
            #expect(try Set(files().keys).isSuperset(of: ["backup.db.partial", "notes.partial"]))
            // A removed file takes room as long as it is open.
            let open = try manager.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
                try? manager.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
            }
            #expect(!open.contains { $0.hasPrefix(data) && $0.hasSuffix(" (deleted)") })
            #expect(events.all.contains { $0.says("tokens.db-wal.damaged") })
        }
        try SQLiteTokenStore(at: data).close()
        #expect(try files().keys.filter { $0.contains("partial") } == ["notes.partial"], "another program's stays")
    }

    @Test("an erasure that cannot be recorded is not acknowledged, and can be repeated")
    func unrecorded() async throws {
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        try await handle.put("info", under: "anna")
        try FileManager.default.createDirectory(atPath: data + "/erasures", withIntermediateDirectories: false)
        await #expect(throws: StoreError.self) { try await handle.erase("anna") }
        try FileManager.default.removeItem(atPath: data + "/erasures")
        #expect(try await handle.erase("anna") == Erasure(hadToken: false, sessions: 0))
        #expect(try #require(try files()["erasures"]).count > 0)
    }
}
