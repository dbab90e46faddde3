import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// A database and a WAL that do not belong together.
@Suite struct ForeignWALTests {
    private let folder: TemporaryDirectory

    init() throws {
        folder = try TemporaryDirectory()
    }

    // MARK: - A store's files

    /// A folder as a crash leaves it: some tokens in the database, some in the WAL; and a backup, if one is asked for.
    private func crashedStore(_ name: String, backup: Bool = false) async throws -> String {
        let (live, crashed) = (folder.path + "/\(name)-live", folder.path + "/\(name)")
        let store = try SQLiteTokenStore(at: live) { $0.isSealed = false }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<50)
        _ = try await store.writerThread.perform { (writer) throws(SQLiteError) in try writer.checkpoint() }
        await administrator.fill(50..<60)
        if backup { _ = try await administrator.backUp(to: folder.path + "/\(name).backup") { _ in } }
        var hasCopy = false
        while !hasCopy {
            await administrator.fill(60..<70)
            // On the writer's thread, so that nothing is checkpointed meanwhile.
            hasCopy = try await store.writerThread.perform { (writer) throws(SQLiteError) in
                guard let index = writer.connection.walIndex, index.frames > index.movedFrames else { return false }
                return (try? FileManager.default.copyItem(atPath: live, toPath: crashed)) != nil
            }
        }
        try FileManager.default.removeItem(atPath: crashed + "/lock")
        store.close()
        return crashed
    }

    private func options(_ directory: String) -> StoreOptions {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: directory))
        options.isSealed = false
        return options
    }

    private func bytes(_ path: String) throws -> [UInt8] { [UInt8](try Data(contentsOf: URL(filePath: path))) }

    private func replace(_ path: String, by other: String) throws {
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.copyItem(atPath: other, toPath: path)
    }

    enum Cause: String, CaseIterable {
        case backupByHand, otherStore, otherDatabase
    }

    @Test("what does not belong together is refused and not touched; a restore helps", arguments: Cause.allCases)
    func refusal(of cause: Cause) async throws {
        let data = try await crashedStore("one", backup: true)
        let (database, wal) = (data + "/tokens.db", data + "/tokens.db-wal")
        switch cause {
        case .backupByHand: try replace(database, by: folder.path + "/one.backup")
        case .otherStore: try replace(wal, by: try await crashedStore("two") + "/tokens.db-wal")
        case .otherDatabase:
            let other = folder.path + "/other.db"
            try SQLiteConnection(path: other, mode: .readWriteCreate).execute("CREATE TABLE song (title)")
            try replace(database, by: other)
        }
        let before = (try bytes(database), try bytes(wal))
        let error = #expect(throws: SQLiteOpenError.foreignWAL(path: database, wal: wal)) {
            try SQLiteTokenStore(directory: data, options: options(data)) { _ in }
        }
        for part in [database + " and its WAL " + wal, "Nothing was changed", "token-cache restore"] {
            #expect(error?.description.contains(part) == true)
        }
        #expect(try bytes(database) == before.0 && bytes(wal) == before.1)
        if cause != .otherDatabase {
            #expect(
                try SQLiteExaminer(directory: data).examine()?.damage?.description.contains("do not belong together")
                    == true)
        }
        #expect(try bytes(database) == before.0 && bytes(wal) == before.1)
        do {
            let offline = try OfflineSQLiteStore(directory: data, options: options(data)) { _ in }
            #expect(try offline.restore(folder.path + "/one.backup") { _ in }.tokens == 60)
        }
        let store = try SQLiteTokenStore(directory: data, options: options(data)) { _ in }
        #expect(try await SQLiteAdministrator(store).verify { _ in }.tokens == 60)
        store.close()
    }

    @Test("a WAL without a commit keeps no database from being opened")
    func emptyWAL() async throws {
        let data = try await crashedStore("one", backup: true)
        try replace(data + "/tokens.db", by: folder.path + "/one.backup")
        #expect(truncate(data + "/tokens.db-wal", 40) == 0)
        try SQLiteTokenStore(directory: data, options: options(data)) { _ in }.close()
    }

    // MARK: - Histories

    @Test("in any history, a database and a WAL that are taken for one store are a state of it", arguments: 1...4)
    func histories(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        let first = try History(folder.path + "/first")
        for _ in 0..<20 { try first.step(&generator) }
        // A copy of the store goes on by itself.
        first.restart()
        try FileManager.default.copyItem(atPath: folder.path + "/first", toPath: folder.path + "/second")
        let second = try History(folder.path + "/second", states: first.states)
        for history in [first, second] {
            history.restart()
            for _ in 0..<30 { try history.step(&generator) }
        }
        for history in [first, second] {
            for pair in history.pairs + history.crashes {
                #expect(try content(pair, of: [history]) == .known, "the files of one moment belong together")
            }
        }
        let databases = Set((first.pairs + second.pairs).map(\.database))
        // Without a commit there is nothing to compare.
        let logs = Set((first.pairs + second.pairs).map(\.wal)).filter { !$0.isEmpty }
        var (known, refused) = (0, 0)
        for _ in 0..<600 {
            guard let database = databases.randomElement(using: &generator),
                let wal = logs.randomElement(using: &generator)
            else { break }
            switch try content(FilePair(database: database, wal: wal), of: [first, second]) {
            case .known: known += 1
            case .refused: refused += 1
            case .mixture: Issue.record("a mixture was taken for a store")
            }
        }
        #expect(known > 10 && refused > 100)
    }

    private enum Finding { case known, mixture, refused }

    private func content(_ pair: FilePair, of histories: [History]) throws -> Finding {
        let path = folder.path + "/\(UUID()).db"
        defer { for suffix in ["", "-wal"] { unlink(path + suffix) } }
        try Data(pair.database).write(to: URL(filePath: path))
        try Data(pair.wal).write(to: URL(filePath: path + "-wal"))
        switch try WALExaminer.examine(path + "-wal", of: path) {
        case .foreign: return .refused
        case .damaged: return .mixture
        case .sound: break
        }
        do throws(SQLiteError) {
            let connection = try SQLiteConnection(path: path, mode: .readWrite)
            guard try connection.text("PRAGMA integrity_check") == "ok" else { return .mixture }
            let state = try History.content(connection)
            return histories.contains { $0.states.contains(state) } ? .known : .mixture
        } catch {
            return .mixture
        }
    }
}

/// A database's and a WAL's bytes.
private struct FilePair: Hashable {
    let database: [UInt8]
    let wal: [UInt8]
}

/// A store that is changed and checkpointed at random, with all states that it had and its files at each moment.
private final class History {
    private let opener: StoreOpener
    private var writer: WriterConnection?
    private var reader: SQLiteConnection?
    private var version = 0
    private(set) var states: Set<[Int: Int]>
    private(set) var pairs: [FilePair] = []
    /// As a power cut during a checkpoint leaves them; the database alone is none that anybody copies.
    private(set) var crashes: [FilePair] = []

    init(_ folder: String, states: Set<[Int: Int]> = [[:]]) throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: folder))
        options.isSealed = false
        opener = StoreOpener(directory: folder, database: folder + "/tokens.db", options: options) { _ in }
        self.states = states
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        _ = try open()
    }

    private func open() throws -> WriterConnection {
        if let writer { return writer }
        let writer = try opener.open().writer
        try opener.settle(writer)
        // Otherwise the WAL would not be held for a background checkpoint.
        writer.smallDatabase = 0
        self.writer = writer
        return writer
    }

    /// Closes everything as a crash does; the next step opens it again.
    func restart() {
        (reader, writer) = (nil, nil)
    }

    /// The row keys with their values.
    static func content(_ connection: SQLiteConnection) throws(SQLiteError) -> [Int: Int] {
        let select = try SQLiteStatement("SELECT key, written_at FROM token", on: connection)
        var content: [Int: Int] = [:]
        while try select.step() { content[Int(select.blob(at: 0)[0])] = select.integer(at: 1) }
        return content
    }

    func step(_ generator: inout SeededGenerator) throws {
        let writer = try open()
        switch Int.random(in: 0..<16, using: &generator) {
        case 0: restart()
        case 1: _ = try writer.checkpoint(.truncate, waiting: 0)
        case 2...3: try checkpoint(writer, &generator)
        case 4...5:
            try writer.holdWAL()
            try commit(writer, &generator)
            try note(writer)
            let before = try files().database
            _ = try writer.checkpointHeldWAL(synchronizes: false) {}
            try noteCrash(from: before, &generator)
        case 6:
            let reader = try SQLiteConnection(path: opener.database, mode: .readOnly)
            try reader.execute("BEGIN")
            _ = try reader.integer("SELECT count(*) FROM token")
            self.reader = reader
        case 7...8: reader = nil
        default: try commit(writer, &generator)
        }
        if self.writer != nil { try note(writer) } else { pairs.append(try files()) }
    }

    private func commit(_ writer: WriterConnection, _ generator: inout SeededGenerator) throws {
        version += 1
        var rows: [Row] = []
        for _ in 0..<Int.random(in: 1...4, using: &generator) {
            let number = UInt8.random(in: 0..<40, using: &generator)
            let key = RowKey(bytes: [number], hashPrefix: UInt64(number) << 56)
            rows.append(
                Row(
                    key: key, value: [UInt8](repeating: 1, count: .random(in: 10...400, using: &generator)),
                    keyNumber: 0, times: RowTimes(writtenAt: Int64(version), expiresAt: nil), id: [],
                    index: ObjectIdentifier(writer)))
        }
        if Bool.random(using: &generator) {
            for outcome in try writer.commit(rows) { try outcome.get() }
        } else {
            _ = try writer.remove(rows.map(\.key))
        }
    }

    private func checkpoint(_ writer: WriterConnection, _ generator: inout SeededGenerator) throws {
        try note(writer)
        let before = try files().database
        _ = try writer.checkpoint(.restart, waiting: 0)
        try noteCrash(from: before, &generator)
    }

    /// Notes files as they are if the power fails during a checkpoint: any of its pages are in the database.
    private func noteCrash(from before: [UInt8], _ generator: inout SeededGenerator) throws {
        let after = try files()
        for _ in 0..<2 {
            var mixed = after.database
            for start in stride(from: 0, to: min(before.count, mixed.count), by: 512)
            where Bool.random(using: &generator) {
                mixed.replaceSubrange(start..<(start + 512), with: before[start..<(start + 512)])
            }
            crashes.append(FilePair(database: mixed, wal: after.wal))
        }
    }

    private func note(_ writer: WriterConnection) throws {
        states.insert(try Self.content(writer.connection))
        pairs.append(try files())
    }

    private func files() throws -> FilePair {
        func bytes(_ path: String) -> [UInt8] { (try? [UInt8](Data(contentsOf: URL(filePath: path)))) ?? [] }
        return FilePair(database: bytes(opener.database), wal: bytes(opener.database + "-wal"))
    }
}
