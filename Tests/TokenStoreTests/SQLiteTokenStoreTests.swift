import Foundation
import TestSupport
import Testing

@testable import TokenStore

@Suite struct SQLiteTokenStoreTests {
    private let folder: TemporaryDirectory

    init() throws {
        folder = try TemporaryDirectory()
    }

    private func open(_ name: String = "data") throws -> SQLiteTokenStore {
        try SQLiteTokenStore(directory: "\(folder.path)/\(name)")
    }

    /// Runs SQL on a closed store's file, as somebody with a tool could.
    private func edit(_ sql: String) throws {
        try SQLiteConnection(path: "\(folder.path)/data/tokens.db", mode: .readWriteCreate).execute(sql)
    }

    private func mode(_ path: String) throws -> Int {
        let attributes = try FileManager.default.attributesOfItem(atPath: "\(folder.path)/\(path)")
        return (attributes[.posixPermissions] as? Int) ?? 0
    }

    @Test("what is stored is found, the last value counts, and nothing else is there")
    func storesAndFetches() async throws {
        let store = try open()
        let session = try await SessionActor.open(store)
        #expect(try await session.get("a") == nil)
        try await session.put("1", under: "a")
        try await session.put("2", under: "b")
        try await session.put("", under: "empty")
        try await session.put("3", under: "a")
        #expect(try await session.get("a") == "3")
        #expect(try await session.get("b") == "2")
        #expect(try await session.get("empty") == "")
        #expect(try await session.get("A") == nil)
        let large = String(repeating: "x", count: 1 << 20)
        try await session.put(large, under: "large")
        #expect(try await session.get("large") == large)
        store.close()
    }

    @Test("ids are bytes: case, NUL and length tell them apart")
    func idsAreBytes() async throws {
        let store = try open()
        let session = try await SessionActor.open(store)
        let ids = ["a", "A", "a\0", "a\0b", "é", "e\u{301}", "1", "01", " 1"]
        for id in ids { try await session.put("value of \(id)", under: id) }
        for id in ids { #expect(try await session.get(id) == "value of \(id)") }
        store.close()
    }

    @Test("an answered write is seen by every session at once")
    func readYourWrites() async throws {
        let store = try open()
        let writer = try await SessionActor.open(store)
        let reader = try await SessionActor.open(store)
        for number in 0..<200 {
            try await writer.put("\(number)", under: "a")
            // The reader's snapshot stays open between its reads, as nobody flushes it.
            #expect(try await reader.get("a") == "\(number)")
        }
        store.close()
    }

    @Test("writes from many sessions at once are all kept")
    func concurrentWriters() async throws {
        let store = try open()
        let sessions = [try await SessionActor.open(store), try await SessionActor.open(store)]
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<400 {
                let session = sessions[number % 2]
                group.addTask { try await session.put("\(number)", under: "id \(number)") }
            }
            try await group.waitForAll()
        }
        for number in 0..<400 { #expect(try await sessions[0].get("id \(number)") == "\(number)") }
        store.close()
        let again = try open()
        let session = try await SessionActor.open(again)
        for number in 0..<400 { #expect(try await session.get("id \(number)") == "\(number)") }
        again.close()
    }

    @Test("a closed store refuses writes and leaves one file without a log")
    func closes() async throws {
        let store = try open()
        let session = try await SessionActor.open(store)
        try await session.put("1", under: "a")
        store.close()
        await #expect(throws: StoreError.closed) { try await session.put("2", under: "a") }
        let size = try FileManager.default.attributesOfItem(atPath: "\(folder.path)/data/tokens.db-wal")[.size] as? Int
        #expect(size == 0)
    }

    // MARK: - Opening

    @Test("the folder and its files are the owner's alone, also below folders that are made on the way")
    func permissions() async throws {
        let store = try open("new/deeper/data")
        let session = try await SessionActor.open(store)
        try await session.put("1", under: "a")
        #expect(try mode("new") == 0o700)
        #expect(try mode("new/deeper/data") == 0o700)
        for file in ["tokens.db", "tokens.db-wal", "tokens.db-shm", "lock"] {
            #expect(try mode("new/deeper/data/\(file)") == 0o600, "\(file)")
        }
        store.close()
    }

    @Test("a second store on one folder is refused and names the first one's process")
    func lock() throws {
        let first = try open()
        let expected = StoreOpenError.inUse(path: "\(folder.path)/data", processID: Int(getpid()))
        #expect(throws: expected) { try open() }
        #expect(expected.description.contains("process \(getpid())"))
        first.close()
    }

    @Test("a store can be opened again when the one before has gone")
    func reopens() throws {
        for _ in 0..<3 { try open().close() }
    }

    @Test("a file that is no database stays as it is")
    func notADatabase() throws {
        try FileManager.default.createDirectory(atPath: "\(folder.path)/data", withIntermediateDirectories: true)
        let text = Data(String(repeating: "not a database ", count: 100).utf8)
        let file = URL(filePath: "\(folder.path)/data/tokens.db")
        try text.write(to: file)
        do {
            try open().close()
            Issue.record("it was opened")
        } catch StoreOpenError.notADatabase(let path, _) {
            #expect(path == file.path)
        }
        #expect(try Data(contentsOf: file) == text)
    }

    @Test("a database of a later version is not touched")
    func newer() throws {
        try open().close()
        try edit("PRAGMA user_version = 99")
        let path = "\(folder.path)/data/tokens.db"
        #expect(throws: StoreOpenError.newer(path: path, version: 99, supported: Schema.version)) { try open() }
    }

    @Test("a database of another program is not touched")
    func foreign() throws {
        try FileManager.default.createDirectory(atPath: "\(folder.path)/data", withIntermediateDirectories: true)
        try edit("CREATE TABLE theirs (x)")
        let before = try Data(contentsOf: URL(filePath: "\(folder.path)/data/tokens.db"))
        #expect(throws: StoreOpenError.foreign(path: "\(folder.path)/data/tokens.db")) { try open() }
        #expect(try Data(contentsOf: URL(filePath: "\(folder.path)/data/tokens.db")) == before)
    }

    @Test("a path that is a file, or lies below one, is refused with what to do")
    func notAFolder() throws {
        try Data().write(to: URL(filePath: "\(folder.path)/file"))
        #expect(throws: StoreOpenError.notADirectory(path: "\(folder.path)/file")) { try open("file") }
        do {
            try open("file/data").close()
            Issue.record("it was opened")
        } catch let error as StoreOpenError {
            #expect(error.description.contains("--data-directory"))
        }
    }

    @Test("commits are durable: WAL with full synchronisation")
    func durability() throws {
        try open().close()
        let connection = try SQLiteConnection(path: "\(folder.path)/data/tokens.db", mode: .readOnly)
        #expect(try connection.text("PRAGMA journal_mode") == "wal")
        #expect(try connection.integer("PRAGMA application_id") == Schema.applicationID)
        #expect(try connection.integer("PRAGMA user_version") == Schema.version)
    }
}

@Suite struct CommitterTests {
    @Test("a write that fails by itself leaves the others of its group alone")
    func oneBadWrite() async throws {
        let folder = try TemporaryDirectory()
        let connection = try SQLiteConnection(path: folder.path + "/db", mode: .readWriteCreate)
        try connection.execute(Schema.migrations[0])
        try connection.execute(
            """
            CREATE TRIGGER refuse BEFORE INSERT ON token WHEN NEW.key = CAST('bad' AS BLOB)
            BEGIN SELECT RAISE(ABORT, 'refused'); END
            """
        )
        let committer = try Committer(connection)
        let outcomes = committer.commit([
            Write(key: Array("a".utf8), value: [1]), Write(key: Array("bad".utf8), value: [2]),
            Write(key: Array("b".utf8), value: [3]),
        ])
        #expect(outcomes.map { (try? $0.get()) != nil } == [true, false, true])
        #expect(try connection.integer("SELECT count(*) FROM token") == 2)
    }

    @Test("when the transaction fails, every write of the group fails and none is stored")
    func failingGroup() throws {
        let folder = try TemporaryDirectory()
        let connection = try SQLiteConnection(path: folder.path + "/db", mode: .readWriteCreate)
        try connection.execute(Schema.migrations[0])
        // As on a full disk: no page more than there are now.
        try connection.execute("PRAGMA max_page_count = 1")
        let committer = try Committer(connection)
        let large = [UInt8](repeating: 7, count: 100_000)
        let outcomes = committer.commit([Write(key: [1], value: [1]), Write(key: [2], value: large)])
        #expect(outcomes.allSatisfy { (try? $0.get()) == nil })
        #expect(try connection.integer("SELECT count(*) FROM token") == 0)
        #expect(!connection.isInTransaction)
        try connection.execute("PRAGMA max_page_count = 1000")
        #expect(committer.commit([Write(key: [2], value: large)]).allSatisfy { (try? $0.get()) != nil })
    }
}
