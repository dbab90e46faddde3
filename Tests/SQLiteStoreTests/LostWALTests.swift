import Foundation
import StoreConformance
import Synchronization
import System
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct LostWALTests {
    private let folder: TemporaryDirectory
    private let data: String
    private let wal: String
    private let store: WriterHarness
    /// Keeps the WAL's index in memory when the writer's connection goes, as a loop's does.
    private let reader: SQLiteConnection

    init() throws {
        folder = try TemporaryDirectory()
        data = folder.path + "/data"
        wal = data + "/tokens.db-wal"
        store = try WriterHarness(data)
        reader = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        try store.store("first", bytes: 100)
        _ = try checkpoint(.truncate)
        #expect(try reader.integer("SELECT count(*) FROM token") == 1)
    }

    private func checkpoint(_ mode: SQLiteConnection.CheckpointMode) throws -> SQLiteConnection.CheckpointOutcome {
        try store.database.perform { (writer) throws(SQLiteError) in
            try writer.connection.checkpoint(mode, waiting: 0)
        }
    }

    private func walSize() throws -> UInt64 {
        try #require(try FileManager.default.attributesOfItem(atPath: wal)[.size] as? UInt64)
    }

    private func cut(to size: UInt64) throws {
        let file = try FileHandle(forWritingTo: URL(filePath: wal))
        try file.truncate(atOffset: size)
        try file.close()
    }

    /// The ids in the database, as a client whose connection is new reads them.
    private func ids() throws -> [String] {
        let connection = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        #expect(try connection.text("PRAGMA integrity_check") == "ok")
        return try connection.text("SELECT group_concat(key) FROM (SELECT key FROM token ORDER BY written_at, key)")
            .split(separator: ",").map(String.init).sorted()
    }

    /// The events since the start that tell of a loss.
    private var losses: [StoreEvent] {
        store.events.all.filter { $0.says("the WAL \(wal)") }
    }

    @Test("a WAL that is cut to nothing loses what only it held, says how much, and the store goes on")
    func cutToNothing() throws {
        for id in ["second", "third"] { try store.store(id, bytes: 5_000) }
        try cut(to: 0)
        store.database.lookAfterFiles()
        #expect(losses == [.walCut(path: wal, commits: 2)])
        #expect(losses[0].severity == .fault && losses[0].description.contains("its last 2 commits"))
        #expect(store.state.fault == nil)
        #expect(try ids() == ["first"])
        #expect(try reader.integer("SELECT count(*) FROM token") == 1)
        try store.store("fourth", bytes: 5_000)
        #expect(try ids() == ["first", "fourth"])
        #expect(try reader.integer("SELECT count(*) FROM token") == 2)
    }

    @Test("what is written to a WAL that was cut before is not acknowledged, and nothing of it is left")
    func writing() throws {
        for id in ["second", "third"] { try store.store(id, bytes: 5_000) }
        try cut(to: 0)
        #expect(throws: StoreError.self) { try store.store("fourth", bytes: 5_000) }
        #expect(losses == [.walCut(path: wal, commits: 2)])
        try store.store("fifth", bytes: 5_000)
        #expect(try ids() == ["first", "fifth"].sorted())
    }

    @Test("of a WAL that is cut in the middle the commits before that are kept")
    func cutInTheMiddle() throws {
        try store.store("second", bytes: 5_000)
        let size = try walSize()
        for id in ["third", "fourth"] { try store.store(id, bytes: 5_000) }
        try cut(to: size + 100)
        store.database.lookAfterFiles()
        #expect(losses == [.walCut(path: wal, commits: 3)])
        #expect(try ids() == ["first", "second"])
        #expect(try reader.integer("SELECT count(*) FROM token") == 2)
    }

    @Test("a WAL that is cut while a part of it was moved leaves a database that is used only when it is sound")
    func cutBehindACheckpoint() throws {
        try store.store("second", bytes: 5_000)
        let size = try walSize()
        try store.store("third", bytes: 5_000)
        // So far it will be moved.
        try reader.execute("BEGIN")
        #expect(try reader.integer("SELECT count(*) FROM token") == 3)
        try store.store("fourth", bytes: 5_000)
        #expect(try checkpoint(.passive) == .heldUp)
        try reader.execute("COMMIT")
        try cut(to: size)
        store.database.lookAfterFiles()
        #expect(losses == [.walCut(path: wal, commits: 3)])
        let check = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        let isSound = (try? check.checkForMixedPages()) != nil
        #expect((store.state.fault == nil) == isSound)
        guard !isSound else { return }
        #expect(throws: StoreError.self) { try store.store("fifth", bytes: 100) }
        #expect(store.state.fault?.description.contains("token-cache restore") == true)
    }

    @Test("a WAL that was in the database already can be cut")
    func cutAfterACheckpoint() throws {
        try store.store("second", bytes: 5_000)
        #expect(try checkpoint(.passive) == .complete)
        try cut(to: 0)
        store.database.lookAfterFiles()
        #expect(losses == [.walCut(path: wal, commits: 0)])
        #expect(losses[0].description.contains("nothing is lost"))
        try store.store("third", bytes: 5_000)
        #expect(try ids() == ["first", "second", "third"])
    }

    @Test("a WAL that is removed or replaced is put back, and nothing is lost", arguments: [false, true])
    func removed(_ isReplaced: Bool) throws {
        for id in ["second", "third"] { try store.store(id, bytes: 5_000) }
        try FileManager.default.removeItem(atPath: wal)
        if isReplaced { try Data().write(to: URL(filePath: wal)) }
        store.database.lookAfterFiles()
        #expect(losses == [.walPutBack(path: wal)])
        #expect(store.state.fault == nil)
        #expect(try ids() == ["first", "second", "third"])
        #expect(try reader.integer("SELECT count(*) FROM token") == 3)
        try store.store("fourth", bytes: 5_000)
        #expect(try ids() == ["first", "fourth", "second", "third"])
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: data).sorted() == [
                "lock", "tokens.db", "tokens.db-wal",
            ])
    }

    @Test("a WAL that cannot be put back at once is not given up")
    func stranded() async throws {
        try store.store("second", bytes: 5_000)
        try FileManager.default.removeItem(atPath: wal)
        try FileManager.default.createDirectory(atPath: wal + ".new/in the way", withIntermediateDirectories: true)
        for _ in 0..<2 {
            #expect(throws: StoreError.self) { try store.store("third", bytes: 5_000) }
            store.database.lookAfterFiles()
            #expect(store.state.fault != nil)
        }
        #expect(losses.count == 1)
        try FileManager.default.removeItem(atPath: wal + ".new")
        // Longer than it waits between two attempts.
        try await Task.sleep(for: .milliseconds(200))
        store.database.lookAfterFiles()
        #expect(losses.last == .walPutBack(path: wal))
        #expect(try ids().contains("second"))
        try store.store("fourth", bytes: 5_000)
        #expect(try ids().contains("fourth"))
    }

    @Test(
        "a WAL that is cut or removed while it is not open is told of, and the store goes on", arguments: [false, true])
    func lostBetweenTwoConnections(_ isRemoved: Bool) throws {
        try store.store("second", bytes: 5_000)
        #expect(throws: StoreError.self) {
            try store.database.perform { (_) throws(SQLiteError) in
                throw SQLiteError(code: 10, message: "disk I/O error", sql: "test")
            }
        }
        if isRemoved { try FileManager.default.removeItem(atPath: wal) } else { try cut(to: 0) }
        store.database.lookAfterFiles()
        #expect(losses == [.walCut(path: wal, commits: nil)])
        #expect(try ids() == ["first"])
        try store.store("third", bytes: 5_000)
        #expect(try ids() == ["first", "third"])
        #expect(!FileManager.default.fileExists(atPath: data + "/tokens.db-shm"))
    }

    @Test("a reader makes no WAL, which the writer would not know")
    func readersMakeNone() throws {
        try FileManager.default.removeItem(atPath: wal)
        let other = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        #expect(throws: SQLiteError.self) { try other.integer("SELECT count(*) FROM token") }
        #expect(!FileManager.default.fileExists(atPath: wal))
        store.database.lookAfterFiles()
        #expect(try ids() == ["first"])
    }

    @Test("handles go on over a WAL that is cut or removed", arguments: [false, true])
    func handles(_ isRemoved: Bool) async throws {
        let events = Events()
        let data = folder.path + "/other"
        let wal = data + "/tokens.db-wal"
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await ConformanceHandle.open(store)
        for round in 0..<5 {
            try await handle.put("\(round)", under: "me")
            #expect(try await handle.get("me") == "\(round)")
            if isRemoved { try FileManager.default.removeItem(atPath: wal) } else { _ = truncate(wal, 0) }
            // The write finds it out, or the look did before it.
            _ = try? await handle.put("perhaps", under: "other")
            // Between the two of them it is opened again.
            for _ in 0..<500 where store.fault != nil { try await Task.sleep(for: .milliseconds(20)) }
            try await handle.put("again", under: "me")
            #expect(try await handle.get("me") == "again")
        }
        #expect(try await SQLiteAdministrator(store).verify { _ in }.isSound)
        #expect(!events.all.contains { if case .vanished = $0 { true } else { false } })
    }

    @Test("a database that is cut is told of and not written to any more")
    func cutDatabase() throws {
        for number in 0..<20 { try store.store("\(number)", bytes: 5_000) }
        #expect(try checkpoint(.truncate) == .complete)
        // A checkpoint that makes it shorter is no reason.
        _ = try store.database.perform { (writer) throws(SQLiteError) in
            try writer.connection.execute("DELETE FROM token WHERE length(key) = 1; PRAGMA incremental_vacuum")
            return try writer.checkpoint()
        }
        store.database.lookAfterFiles()
        try store.store("last", bytes: 100)
        #expect(try checkpoint(.truncate) == .complete)
        #expect(store.events.all.isEmpty)
        // By its path: closing a descriptor would give up the locks that SQLite has on it.
        #expect(truncate(data + "/tokens.db", 8_192) == 0)
        for _ in 0..<2 {
            #expect(throws: StoreError.self) { try store.store("lost", bytes: 100) }
            store.database.lookAfterFiles()
        }
        #expect(store.state.fault?.description.contains("token-cache restore") == true)
        #expect(store.events.all.count == 1)
    }

    @Test("a database that is cut before the first look is noticed, and taken as it is when it is adopted again")
    func cutBeforeTheFirstLook() throws {
        let database = data + "/tokens.db"
        var files = StoreFiles(directory: data, database: database)
        files.adopt(wal: FileIdentity.find(wal)?.identity)
        #expect(truncate(database, 4_096) == 0)
        for expected in [StoreFiles.Finding.databaseCut, .inPlace] {
            let finding = files.look(walSize: 0, databaseSize: nil)
            #expect(finding == expected)
            files.adopt(wal: FileIdentity.find(wal)?.identity)
        }
    }

    @Test("reads that fail count for readiness until none has for a while, and have the database opened again")
    func failedReads() throws {
        let state = store.state
        state.noteFailedRead(.read(StoreFault(SQLiteError(code: 5, message: "database is locked", sql: "SELECT"))))
        state.noteFailedRead(.vanished(path: data))
        #expect(state.readFaults == nil)
        let fault = StoreError.read(StoreFault(SQLiteError(code: 522, message: "disk I/O error", sql: "SELECT")))
        state.noteFailedRead(fault)
        let generation = state.generation.load(ordering: .relaxed)
        for _ in 0..<3 { store.database.lookAfterFiles() }
        #expect(state.readFaults?.error == fault)
        #expect(state.generation.load(ordering: .relaxed) == generation + 1)
        #expect(store.events.all == [.readsFail(fault)])
        try store.store("second", bytes: 100)
    }
}
