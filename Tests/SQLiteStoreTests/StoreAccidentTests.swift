import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// Accidents to a store's files while it is open, and what the following restart finds.
@Suite final class StoreAccidentTests {
    private let folder = TemporaryDirectory()
    private let data: String
    private let database: String
    private let wal: String
    private var store: WriterHarness?
    /// Keeps the WAL's index in memory when the writer's connection is closed, as a loop's reader does.
    private var reader: SQLiteConnection?

    init() throws {
        data = folder.path + "/data"
        database = data + "/tokens.db"
        wal = database + "-wal"
        let store = try WriterHarness(data)
        self.store = store
        reader = try SQLiteConnection(path: database, mode: .readOnly)
        try store.store("first", bytes: 50_000)
        #expect(try checkpoint(.truncate) == .complete)
        #expect(try reader?.integer("SELECT count(*) FROM token") == 1)
    }

    private func checkpoint(_ mode: SQLiteConnection.CheckpointMode) throws -> SQLiteConnection.CheckpointOutcome? {
        try store?.perform { try $0.connection.checkpoint(mode, waiting: 0) }
    }

    private func size(_ path: String) throws -> Int {
        try #require(try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int)
    }

    /// Truncates a file by its path: closing a descriptor would release SQLite's locks on the file.
    private func cut(_ path: String, to size: Int) {
        #expect(truncate(path, size) == 0)
    }

    /// The ids in the database, as a client whose connection is new reads them.
    private func ids() throws -> Set<String> {
        let connection = try SQLiteConnection(path: database, mode: .readOnly)
        #expect(try connection.text("PRAGMA integrity_check") == "ok")
        let rows = try OpenedRows(connection, #require(store).state.sealing)
        var ids: Set<String> = []
        while case .token(_, let token) = try rows.next() {
            ids.insert(String(decoding: try token.get().id, as: UTF8.self))
        }
        return ids
    }

    private var isMarked: Bool { CheckRequest(of: database).exists }

    /// What the store reports of an accident, which a write or the check of each second finds.
    private func finding(byWriting: Bool) throws -> String {
        let store = try #require(store)
        if !byWriting { store.database.lookAfterFiles() }
        for _ in 0..<2 {
            let error = #expect(throws: StoreError.self) { try store.store("refused", bytes: 5_000) }
            #expect(error?.cause == .vanished)
            store.database.lookAfterFiles()
        }
        #expect(store.state.fault?.cause == .vanished)
        #expect(store.events.all.count == 1 && store.events.all[0].severity == .fault)
        return try #require(store.events.all.first).description
    }

    /// Ends the store like a process that closes nothing, and opens it again.
    private func restart() throws -> WriterHarness {
        (store, reader) = (nil, nil)
        let store = try WriterHarness(data)
        self.store = store
        return store
    }

    enum Accident: CaseIterable {
        case walRemoved, walReplaced, walCut, walCutInTheMiddle, databaseReplaced, lockRemoved, folderRemoved
    }

    @Test(arguments: [true, false])
    func `no empty store takes the place of a database that was cut off or removed`(_ isCut: Bool) throws {
        if isCut { cut(database, to: 0) } else { try FileManager.default.removeItem(atPath: database) }
        _ = try finding(byWriting: false)
        (store, reader) = (nil, nil)
        #expect(throws: SQLiteOpenError.emptied(path: database)) { try WriterHarness(data) }
    }

    @Test(
        "an accident fails the write that finds it and all later ones, is reported once, and a restart has what the files held",
        arguments: Accident.allCases, [true, false])
    func accident(_ accident: Accident, byWriting: Bool) throws {
        try store?.store("second", bytes: 5_000)
        let sizeOfSecond = try size(wal)
        try store?.store("third", bytes: 5_000)
        let files = FileManager.default
        var (told, kept): (String, Set<String>) = ("the WAL \(wal) was", ["first", "second", "third"])
        switch accident {
        case .walRemoved: try files.removeItem(atPath: wal)
        case .walReplaced:
            try files.removeItem(atPath: wal)
            try Data().write(to: URL(filePath: wal))
        case .walCut:
            cut(wal, to: 0)
            kept = ["first"]
        case .walCutInTheMiddle:
            cut(wal, to: sizeOfSecond + 100)
            kept = ["first", "second"]
        case .databaseReplaced:
            // By a copy, to which the WAL still belongs.
            try files.copyItem(atPath: database, toPath: database + ".copy")
            #expect(rename(database + ".copy", database) == 0)
            told = "the database \(database) was"
        case .lockRemoved:
            try files.removeItem(atPath: data + "/lock")
            told = "the lock file beside \(database) was"
        case .folderRemoved:
            try files.removeItem(atPath: data)
            (told, kept) = ("the database \(database) was", [])
        }
        // The locks are checked only once a second.
        let text = try finding(byWriting: byWriting && accident != .lockRemoved)
        #expect(text.hasPrefix(told))
        #expect(text.contains("nothing is lost") == [.walRemoved, .walReplaced].contains(accident))
        #expect(text.contains("may be lost") == [.walCut, .walCutInTheMiddle].contains(accident))
        #expect(!files.fileExists(atPath: data) == (accident == .folderRemoved), "nothing is made anew")
        #expect(isMarked == [.walCut, .walCutInTheMiddle, .databaseReplaced].contains(accident))
        let store = try restart()
        try store.store("later", bytes: 100)
        // A write that was refused may be stored all the same.
        #expect(try ids().subtracting(["refused"]) == kept.union(["later"]))
        #expect(!isMarked, "the database was checked before the write")
        #expect(store.state.fault == nil)
    }

    @Test("a database that was moved away is not created anew while its WAL is there")
    func databaseMoved() throws {
        try store?.store("second", bytes: 5_000)
        #expect(rename(database, database + ".away") == 0)
        #expect(try finding(byWriting: true).hasPrefix("the database \(database) was moved"))
        #expect(throws: SQLiteOpenError.emptied(path: database)) { try restart() }
        #expect(rename(database + ".away", database) == 0)
        _ = try restart()
        #expect(try ids().isSuperset(of: ["first", "second"]))
    }

    @Test("a cut database takes no more tokens, and a start says that a backup is needed", arguments: [true, false])
    func databaseCut(byWriting: Bool) throws {
        try store?.perform { try $0.checkpoint() }
        cut(database, to: 8_192)
        #expect(try finding(byWriting: byWriting).hasPrefix("the database \(database) was cut"))
        let error = #expect(throws: (any Error).self) { try restart().store("later", bytes: 100) }
        #expect("\(try #require(error))".contains("token-cache restore"))
    }

    @Test("a WAL that is removed during a read of an earlier state may be lost, and the next start checks the database")
    func removedWhileRead() throws {
        try store?.store("second", bytes: 5_000)
        try reader?.execute("BEGIN")
        #expect(try reader?.integer("SELECT count(*) FROM token") == 2)
        try store?.store("third", bytes: 5_000)
        try FileManager.default.removeItem(atPath: wal)
        #expect(try finding(byWriting: true).contains("may be lost"))
        #expect(isMarked)
        try restart().store("later", bytes: 100)
        #expect(try ids().isSuperset(of: ["first", "later"]))
        #expect(!isMarked)
    }

    @Test("a WAL that is cut when a part of it was checkpointed leaves a database that is used only if it is sound")
    func cutBehindACheckpoint() throws {
        try store?.store("second", bytes: 5_000)
        let end = try size(wal)
        try store?.store("third", bytes: 5_000)
        // Commits up to here will be checkpointed.
        try reader?.execute("BEGIN")
        #expect(try reader?.integer("SELECT count(*) FROM token") == 3)
        try store?.store("fourth", bytes: 5_000)
        #expect(try checkpoint(.passive) == .heldUp)
        try reader?.execute("COMMIT")
        cut(wal, to: end)
        _ = try finding(byWriting: false)
        let store = try restart()
        let check = try SQLiteConnection(path: database, mode: .readOnly)
        let isSound = (try? check.checkForMixedPages()) != nil
        store.database.lookAfterFiles()
        #expect((store.state.fault == nil) == isSound)
        #expect(isMarked != isSound)
        guard !isSound else { return }
        #expect(throws: StoreError.self) { try store.store("fifth", bytes: 100) }
        #expect(store.state.fault?.description.contains("token-cache restore") == true)
    }

    @Test("a WAL that is lost while it is closed, after a fault, is an accident too", arguments: [false, true])
    func lostBetweenTwoConnections(_ isRemoved: Bool) throws {
        try store?.store("second", bytes: 5_000)
        store?.failChange()
        if isRemoved { try FileManager.default.removeItem(atPath: wal) } else { cut(wal, to: 0) }
        let error = #expect(throws: StoreError.self) { try store?.store("third", bytes: 5_000) }
        #expect(error?.cause == .vanished)
        #expect(store?.events.all.last?.description.contains("may be lost") == true)
        try restart().store("later", bytes: 100)
        #expect(try ids() == ["first", "later"])
        #expect(!FileManager.default.fileExists(atPath: database + "-shm"))
    }

    @Test("files that cannot be checked are an error of the disk, and the store continues when they can")
    func failingLook() throws {
        let store = try #require(store)
        #expect(rename(data, data + ".away") == 0)
        // ELOOP, which tells nothing of the files.
        #expect(symlink(data, data) == 0)
        let error = #expect(throws: StoreError.self) { try store.store("refused", bytes: 5_000) }
        #expect(error?.cause == .database && store.state.fault == error)
        #expect(unlink(data) == 0 && rename(data + ".away", data) == 0)
        try store.store("later", bytes: 5_000)
        #expect(try ids().isSuperset(of: ["first", "later"]))
        for _ in 0..<2 { store.database.lookAfterFiles() }
        #expect(store.state.fault == nil && store.recoveries == 1)
    }

    @Test("reads that fail count for readiness until none has for a while, and have the database opened again")
    func failedReads() throws {
        let store = try #require(store)
        let state = store.state
        state.noteFailedRead(.read(StoreFault(SQLiteError(code: 5, message: "database is locked"))))
        state.noteFailedRead(.vanished("the database is gone"))
        #expect(state.readFaults == nil)
        let fault = StoreError.read(StoreFault(SQLiteError(code: 522, message: "disk I/O error")))
        state.noteFailedRead(fault)
        let generation = state.generation.load(ordering: .relaxed)
        for _ in 0..<3 { store.database.lookAfterFiles() }
        #expect(state.readFaults?.error == fault)
        #expect(state.generation.load(ordering: .relaxed) == generation + 1)
        #expect(store.events.all == [.readsFail(fault)])
        try store.store("second", bytes: 100)
    }

    @Test("no write fails while the database is opened again for reads, even just after it was for a write")
    func failedReadAfterFailedWrite() throws {
        let store = try #require(store)
        store.failChange()
        try store.store("second", bytes: 100)
        store.state.noteFailedRead(.read(StoreFault(SQLiteError(code: 522, message: "disk I/O error"))))
        store.database.lookAfterFiles()
        try store.store("third", bytes: 100)
    }
}
