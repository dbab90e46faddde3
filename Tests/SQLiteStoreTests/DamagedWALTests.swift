import Cryptography
import Foundation
import StoreConformance
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct DamagedWALTests {
    private let folder = TemporaryDirectory()
    /// A folder as a crash leaves it, with all commits in the WAL.
    private let crashed: String
    private let bytes: [UInt8]
    /// The WAL's length after each commit.
    private let ends: [Int]

    private static let ids = ["one", "two", "three", "four"]
    private static let frameSize = SQLiteConnection.pageSize + 24

    init() throws {
        crashed = folder.path + "/crashed"
        // With some keys, a bit that is flipped lies in a mark instead of a page's content, and shows another kind of fault.
        try Self.makeRing(in: folder.path + "/data", indexKey: 1)
        let store = try WriterHarness(folder.path + "/data")
        try store.store("zero", bytes: 100)
        // Later commits overwrite the frames of an earlier round.
        for number in 0..<5 { try store.store("zero\(number)", bytes: 30_000) }
        try store.perform { try $0.checkpoint(.restart) }
        var ends: [Int] = []
        for id in Self.ids {
            try store.store(id, bytes: 9_000)
            let index = try store.perform { $0.connection.walIndex }
            ends.append(try #require(index).size)
        }
        try FileManager.default.copyItem(atPath: folder.path + "/data", toPath: crashed)
        try FileManager.default.removeItem(atPath: crashed + "/lock")
        bytes = [UInt8](try Data(contentsOf: URL(filePath: crashed + "/tokens.db-wal")))
        self.ends = ends
        // Each commit has more than one frame, and the rest of the file is of the earlier round.
        #expect(ends[0] >= 32 + 3 * Self.frameSize && ends[3] < bytes.count)
    }

    /// Makes a data folder and a key ring in it, so that rows lie in the same places in each run of a test.
    private static func makeRing(in data: String, indexKey: UInt8) throws {
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: false)
        let index = SecretKey(([UInt8](repeating: 0, count: 31) + [indexKey]).span)
        try StoreOptions(in: data).keyRing.save(KeyRing(index: index, keys: KeyRing.random(createdAt: 1).keys))
    }

    private func damage(_ bytes: [UInt8]) throws -> WALDamage? {
        try Data(bytes).write(to: URL(filePath: crashed + "/tokens.db-wal"))
        guard let fault = try WALExaminer.fault(beside: crashed + "/tokens.db") else { return nil }
        guard case .damagedWAL(_, let damage, nil) = fault else { throw fault }
        return damage
    }

    private func flipped(_ offset: Int) -> [UInt8] {
        var bytes = bytes
        bytes[offset] ^= 0x10
        return bytes
    }

    @Test("a whole WAL, one that ends anywhere, and none at all are not damaged")
    func tornTails() throws {
        #expect(try WALExaminer.fault(beside: folder.path + "/none") == nil)
        #expect(try damage(bytes) == nil)
        for size in stride(from: 0, to: bytes.count, by: 1_001) {
            #expect(try damage(Array(bytes[..<size])) == nil, "\(size)")
        }
        // Zeros, which a file system leaves where a file grew but its content was not written.
        for size in stride(from: ends[2], to: ends[3], by: 512) {
            let torn = Array(bytes[..<size]) + [UInt8](repeating: 0, count: bytes.count - size)
            #expect(try damage(torn) == nil, "\(size)")
        }
    }

    @Test("any sectors of the last group may be missing")
    func tornGroup() throws {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<50 {
            var torn = bytes
            var missing: [Int] = []
            for start in stride(from: ends[2] / 512 * 512 + 512, to: ends[3], by: 512)
            where Bool.random(using: &generator) {
                missing.append(start)
                for offset in start..<min(start + 512, ends[3]) { torn[offset] = 0 }
            }
            #expect(try damage(torn) == nil, "\(missing)")
        }
    }

    /// Frames 42 and 63, and every 64th after each of them, have a header across two sectors: one of the two may be the
    /// earlier round's.
    @Test("any sectors of the last group may still be those of an earlier round")
    func overwrittenGroup() throws {
        let path = folder.path + "/rounds.db"
        let connection = try SQLiteConnection(path: path, mode: .readWriteCreate)
        try connection.execute("PRAGMA page_size = \(SQLiteConnection.pageSize)")
        #expect(try connection.text("PRAGMA journal_mode = WAL") == "wal")
        try connection.execute("PRAGMA wal_autocheckpoint = 0")
        try Schema.create(connection)
        // Each frame of the earlier round marks a commit.
        for _ in 0..<160 { try connection.execute("UPDATE store SET tokens = tokens + 1") }
        #expect(try connection.checkpoint(.restart, waiting: 0) == .complete)
        try connection.execute("UPDATE store SET tokens = tokens + 1")
        let begin = try #require(connection.walIndex).size
        let old = [UInt8](try Data(contentsOf: URL(filePath: path + "-wal")))
        try connection.execute("CREATE TABLE long AS SELECT zeroblob(280000)")
        let end = try #require(connection.walIndex).size
        let new = [UInt8](try Data(contentsOf: URL(filePath: path + "-wal")))
        #expect((end - begin) / Self.frameSize > 128 && old.count > end)
        try FileManager.default.removeItem(atPath: crashed + "/tokens.db")
        try FileManager.default.copyItem(atPath: path, toPath: crashed + "/tokens.db")
        #expect(try damage(new) == nil)
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<50 {
            var torn = new
            for start in stride(from: begin / 512 * 512 + 512, to: end, by: 512) where Bool.random(using: &generator) {
                torn.replaceSubrange(start..<(start + 512), with: old[start..<(start + 512)])
            }
            #expect(try damage(torn) == nil)
        }
    }

    @Test("a flipped bit anywhere before the last two groups is damage, and in the last group it is not noticed")
    func flippedBits() throws {
        for offset in stride(from: 0, to: ends[1], by: 509) {
            let found = try damage(flipped(offset))
            let frame = offset < 32 ? 0 : (offset - 32) / Self.frameSize + 1
            #expect(found?.frame == frame, "\(offset)")
            #expect(found.map { $0.commits >= 2 && $0.frames >= 3 } == true, "\(offset)")
        }
        // The head with each of its fields, and a frame's.
        for offset in 0..<32 { #expect(try damage(flipped(offset))?.frame == 0, "\(offset)") }
        let frame = ends[0]
        for offset in frame..<(frame + 24) { #expect(try damage(flipped(offset)) != nil, "\(offset - frame)") }
        for offset in stride(from: ends[2] + 24, to: bytes.count, by: 1_009) {
            #expect(try damage(flipped(offset)) == nil, "\(offset)")
        }
    }

    @Test("a flipped bit in the last group but one is damage, in its last frame as well, wherever that is")
    func lastButOne() throws {
        let last = ends[2] - Self.frameSize
        for offset in stride(from: ends[1], to: ends[2], by: 512) {
            #expect(try damage(flipped(offset)) != nil, "\(offset)")
        }
        // Page number, salts and checksums.
        for offset in [3, 8, 12, 16, 20] { #expect(try damage(flipped(last + offset)) != nil, "\(offset)") }
    }

    private func options(_ change: (inout StoreOptions) -> Void = { _ in }) -> StoreOptions {
        StoreOptions(in: crashed) {
            change(&$0)
        }
    }

    @Test("a damaged WAL keeps a store from being opened until the operator accepts that; then a copy is kept")
    func opening() async throws {
        let damaged = flipped(ends[0] + 100)
        let wal = URL(filePath: crashed + "/tokens.db-wal")
        let copy = crashed + "/tokens.db-wal.damaged"
        try Data(damaged).write(to: wal)
        let error = #expect(throws: SQLiteOpenError.self) {
            try SQLiteTokenStore(directory: crashed, options: options())
        }
        #expect(error?.description.contains("--accept-damaged-wal") == true)
        #expect(try [UInt8](Data(contentsOf: wal)) == damaged)
        let examiner = SQLiteStoreProvider(examining: crashed)
        #expect(try examiner.examine()?.damage?.description.contains("3 commits") == true)
        #expect(examiner.damagedCopy == nil)
        let events = Events()
        let accepting = options {
            $0.acceptsDamagedWAL = true
            $0.report = { events.add($0) }
        }
        // An earlier copy is replaced.
        try Data("earlier".utf8).write(to: URL(filePath: copy))
        let store = try SQLiteTokenStore(directory: crashed, options: accepting)
        let isTold = events.all.contains { $0.says("the operator has accepted that") && $0.severity == .fault }
        #expect(isTold)
        #expect(try [UInt8](Data(contentsOf: URL(filePath: copy))) == damaged)
        #expect(try FileManager.default.attributesOfItem(atPath: copy)[.posixPermissions] as? Int == 0o600)
        let handle = try await WaitingHandle.open(store)
        #expect(try await handle.get("one") != nil)
        #expect(try await handle.get("two") == nil)
        try await handle.put("1", under: "new")
        #expect(try await SQLiteAdministrator(store).verify { _ in }.damagedCopy == copy)
        store.close()
        // Nothing is left of the damage.
        let again = try SQLiteTokenStore(directory: crashed, options: options())
        #expect(try await WaitingHandle.open(again).get("new") == "1")
        again.close()
    }

    @Test("the operator cannot accept a damaged WAL beside a database that is not in WAL mode")
    func foreign() throws {
        let (database, wal) = (crashed + "/tokens.db", crashed + "/tokens.db-wal")
        try FileManager.default.removeItem(atPath: database)
        // It is not in WAL mode, like a backup or a restored database.
        try Schema.create(SQLiteConnection(path: database, mode: .readWriteCreate))
        let damaged = flipped(ends[0] + 100)
        try Data(damaged).write(to: URL(filePath: wal))
        #expect(throws: SQLiteOpenError.foreignWAL(path: database)) {
            try SQLiteTokenStore(directory: crashed, options: options { $0.acceptsDamagedWAL = true })
        }
        #expect(try [UInt8](Data(contentsOf: URL(filePath: wal))) == damaged)
    }

    @Test("a database that is empty or missing is not made anew beside its WAL", arguments: [true, false])
    func emptied(isMissing: Bool) throws {
        let database = crashed + "/tokens.db"
        if isMissing {
            try FileManager.default.removeItem(atPath: database)
        } else {
            #expect(truncate(database, 0) == 0)
        }
        #expect(throws: SQLiteOpenError.emptied(path: database)) {
            try SQLiteTokenStore(directory: crashed, options: options())
        }
        #expect(FileManager.default.fileExists(atPath: database) != isMissing)
        #expect(try [UInt8](Data(contentsOf: URL(filePath: database + "-wal"))) == bytes)
        try FileManager.default.removeItem(atPath: database + "-wal")
        try SQLiteTokenStore(directory: crashed, options: options()).close()
    }

    @Test("a damaged WAL that is accepted is not used if no copy of it can be kept")
    func notKept() throws {
        let wal = crashed + "/tokens.db-wal"
        try Data(flipped(ends[0] + 100)).write(to: URL(filePath: wal))
        try FileManager.default.createDirectory(atPath: wal + ".damaged/in the way", withIntermediateDirectories: true)
        let error = #expect(throws: SQLiteOpenError.self) {
            try SQLiteTokenStore(directory: crashed, options: options { $0.acceptsDamagedWAL = true })
        }
        #expect(error?.description.contains("no copy of the WAL can be kept") == true)
        #expect(try [UInt8](Data(contentsOf: URL(filePath: wal))) == flipped(ends[0] + 100))
    }

    @Test("an accepted WAL that could not be checkpointed is accepted again, unless it was replaced")
    func acceptedTwice() throws {
        for isReplaced in [false, true] {
            let data = "\(folder.path)/\(isReplaced)"
            try FileManager.default.copyItem(atPath: crashed, toPath: data)
            let path = data + "/tokens.db-wal"
            try Data(flipped(ends[0] + 100)).write(to: URL(filePath: path))
            let sound = Data(bytes)
            let store = try WriterHarness(data) {
                $0.acceptsDamagedWAL = true
            } whenOpened: { _ in
                #expect(rename(path, path + ".away") == 0)
            }
            #expect(store.state.fault != nil)
            #expect(rename(path + ".away", path) == 0)
            guard isReplaced else {
                try store.store("new", bytes: 100)
                continue
            }
            // Between the look at the files and their opening.
            store.events.tell.withLock { $0 = { try? sound.write(to: URL(filePath: path), options: .atomic) } }
            let error = #expect(throws: StoreError.self) { try store.store("new", bytes: 100) }
            #expect(error?.cause == .vanished)
            #expect(try Data(contentsOf: URL(filePath: path)) == sound)
        }
    }

    /// A store as a crash leaves it when a part of its WAL was in the database: its folder, and the WAL's length up to there.
    ///
    /// - Parameter indexKey: The last byte of the key that decides which rows share a page. With most keys (such as 1)
    ///   SQLite's check finds the mix; with a few (such as 10) it does not, and tokens are missing. With a random key
    ///   some stores would not even be mixed, because the WAL's sound part has all pages that matter.
    private func partlyMoved(indexKey: UInt8) throws -> (folder: String, moved: Int) {
        let (data, copy) = (folder.path + "/moving", folder.path + "/moved")
        try Self.makeRing(in: data, indexKey: indexKey)
        let store = try WriterHarness(data)
        for number in 0..<200 { try store.store("old\(number)", bytes: 1_000) }
        try store.perform { try $0.checkpoint(.truncate) }
        for number in 0..<200 { try store.store("new\(number)", bytes: 1_000) }
        // A reader of this state keeps later commits from being checkpointed, and the WAL from being restarted.
        let reader = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        try reader.execute("BEGIN")
        #expect(try reader.integer("SELECT count(*) FROM token") == 400)
        try store.store("last", bytes: 1_000)
        let walIndex = try store.perform { writer in
            _ = try writer.connection.checkpoint(.passive, waiting: 0)
            return writer.connection.walIndex
        }
        let found = try #require(walIndex)
        #expect(found.movedFrames > 0 && found.movedFrames < found.frames)
        try FileManager.default.copyItem(atPath: data, toPath: copy)
        try FileManager.default.removeItem(atPath: copy + "/lock")
        return (copy, 32 + found.movedFrames * Self.frameSize)
    }

    @Test("a database that has more of a damaged WAL than can be read accepts no more tokens", arguments: [1, 10])
    func mixedPages(indexKey: UInt8) async throws {
        let (data, moved) = try partlyMoved(indexKey: indexKey)
        let wal = URL(filePath: data + "/tokens.db-wal")
        var bytes = [UInt8](try Data(contentsOf: wal))
        bytes[moved / 2] ^= 1
        try Data(bytes).write(to: wal)
        let accepting = StoreOptions(in: data) { $0.acceptsDamagedWAL = true }
        do {
            let copy = folder.path + "/copied"
            try FileManager.default.copyItem(atPath: data, toPath: copy)
            let directory = try DataDirectory.lock(copy)
            let error = #expect(throws: SQLiteOpenError.self) {
                try SQLiteCopySource(in: directory, options: accepting)
            }
            guard case .notADatabase = error else {
                Issue.record("\(String(describing: error))")
                return
            }
        }
        let events = Events()
        let store = try SQLiteTokenStore(at: data, events: events) {
            $0.acceptsDamagedWAL = true
        }
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        await #expect(throws: StoreError.self) { try await handle.put("1", under: "id") }
        #expect(store.fault?.description.contains("is not a usable database") == true)
        #expect(try await handle.get("old0") != nil, "what can be read is")
        #expect(events.all.contains { $0.says("the operator has accepted that") })
    }

    @Test("a WAL that is damaged while the store is in use is not dropped before a restart, even if that is accepted")
    func damageInUse() throws {
        let data = folder.path + "/used"
        let store = try WriterHarness(data) { $0.acceptsDamagedWAL = true }
        for id in Self.ids { try store.store(id, bytes: 9_000) }
        let reader = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        #expect(try reader.integer("SELECT count(*) FROM token") == 4)
        let wal = data + "/tokens.db-wal"
        let file = try FileHandle(forUpdating: URL(filePath: wal))
        try file.seek(toOffset: UInt64(32 + Self.frameSize + 2_000))
        try file.write(contentsOf: [1, 2, 3])
        try file.close()
        // Has the database opened again.
        store.state.noteFailedRead(.read(StoreFault(SQLiteError(code: 522, message: "disk I/O error"))))
        store.database.lookAfterFiles()
        #expect(throws: StoreError.self) { try store.store("five", bytes: 100) }
        #expect(store.state.fault?.description.contains("is damaged: its frame 2") == true)
        #expect(!store.events.all.contains { $0.says("the operator has accepted that") })
    }
}
