import Foundation
import Metrics
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// The walk over all rows of a store, also of one that is damaged.
@Suite struct WalkTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }
    private var path: String { data + "/tokens.db" }

    private func open(isServing: Bool = false) throws -> SQLiteTokenStore {
        try SQLiteTokenStore(at: data) { $0.isServing = isServing }
    }

    /// Makes a closed store of tokens, and of sessions of each tenth user.
    private func makeStore(of count: Int) async throws {
        let store = try open()
        defer { store.close() }
        await SQLiteAdministrator(store).fill(0..<count)
        let handle = try await WaitingHandle.open(store)
        for number in stride(from: 0, to: count, by: 10) {
            try await handle.begin("secret \(number)", of: "user \(number)")
        }
    }

    @Test func `a rotation is completed beside a damaged byte in every tenth row, and these rows are kept`()
        async throws
    {
        try await makeStore(of: 500)
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        try connection.execute(
            """
            UPDATE token SET value = CAST(substr(value, 1, 40) || x'00' || substr(value, 42) AS BLOB)
            WHERE slot IN (SELECT slot FROM (SELECT slot, row_number() OVER (ORDER BY slot) AS n FROM token) WHERE n % 10 = 0);
            UPDATE session SET user = CAST(substr(user, 1, 40) || x'00' || substr(user, 42) AS BLOB)
            WHERE key IN (SELECT key FROM (SELECT key, row_number() OVER (ORDER BY key) AS n FROM session) WHERE n % 10 = 0)
            """)
        let store = try open()
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        _ = try await administrator.addKey()
        let report = try await administrator.walk { _ in }
        // One in 256 damaged bytes was the same before.
        let unreadable = report.unreadable.values.reduce(0, +)
        #expect((45...55).contains(unreadable) && report.rekeyed >= 450 && report.keyNumbers == [2])
        #expect(report.unreadableRows.count == 10)
        try await administrator.retireKey(numbered: 1)
        let rows = try SQLiteConnection(path: path, mode: .readOnly)
        let kept = try rows.integer("SELECT count(*) FROM token WHERE key_number = 1")
        #expect(try kept + rows.integer("SELECT count(*) FROM session WHERE key_number = 1") == unreadable)
    }

    @Test(arguments: [0.0, 0.3, 0.7, 1.0])
    func `a round goes on after a damaged page, and misses its rows only`(_ position: Double) async throws {
        try await makeStore(of: 2_000)
        var content = try #require(FileManager.default.contents(atPath: path))
        let size = SQLiteConnection.pageSize
        // Leaves of a table (sqlite.org/fileformat2.html, section 1.6), with more rows than any other table has.
        let leaves = (1..<content.count / size).map { $0 * size }.filter { content[$0] == 13 && content[$0 + 4] > 2 }
        let leaf = leaves[Int(position * Double(leaves.count - 1))]
        let rows = Int(content[leaf + 4])
        content.replaceSubrange(leaf..<leaf + size, with: Data(repeating: 0xff, count: size))
        try content.write(to: URL(filePath: path))
        let store = try open(isServing: true)
        defer { store.close() }
        let report = try await SQLiteAdministrator(store).walk { _ in }
        #expect(report.tokens == 2_000 - rows && report.sessions == 200)
        #expect(report.damages.count == 1 && report.unreadable.isEmpty)
        #expect(try await !SQLiteAdministrator(store).verify { _ in }.isSound)
    }

    @Test(.timeLimit(.minutes(5)), arguments: ["token", "session"])
    func `a round ends although a table cannot be read at all`(_ table: String) async throws {
        try await makeStore(of: 100)
        let root = try SQLiteConnection(path: path, mode: .readOnly).integer(
            "SELECT rootpage FROM sqlite_schema WHERE name = '\(table)'")
        var content = try #require(FileManager.default.contents(atPath: path))
        let start = (root - 1) * SQLiteConnection.pageSize
        content.replaceSubrange(
            start..<start + SQLiteConnection.pageSize, with: Data(repeating: 0xff, count: SQLiteConnection.pageSize))
        try content.write(to: URL(filePath: path))
        let store = try open(isServing: true)
        defer { store.close() }
        let report = try await SQLiteAdministrator(store).walk { _ in }
        #expect(report.damages.count == 1)
        #expect(report.tokens == (table == "token" ? 0 : 100) && report.sessions == (table == "session" ? 0 : 10))
    }

    /// Fills a leaf of a table or an index with garbage.
    ///
    /// - Returns: What was in it, and where.
    private func damageLeaf(of name: String) throws -> (bytes: Data, offset: Int) {
        let page = try SQLiteConnection(path: path, mode: .readOnly).integer(
            "SELECT pageno FROM dbstat WHERE name = '\(name)' AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 2")
        let content = try #require(FileManager.default.contents(atPath: path))
        let range = (page - 1) * SQLiteConnection.pageSize..<page * SQLiteConnection.pageSize
        try write(Data(repeating: 0xff, count: range.count), at: range.lowerBound)
        return (content[range], range.lowerBound)
    }

    private func write(_ bytes: Data, at offset: Int) throws {
        let file = try #require(FileHandle(forWritingAtPath: path))
        try file.seek(toOffset: UInt64(offset))
        try file.write(contentsOf: bytes)
        try file.close()
    }

    @Test(arguments: ["token", "session_by_user"])
    func `a round ends beside a damaged page, and deletes what has expired elsewhere`(_ name: String) async throws {
        try await makeStore(of: 2_000)
        try SQLiteConnection(path: path, mode: .readWrite).execute(
            """
            UPDATE token SET expires_at = 1;
            UPDATE session SET expires_at = 1;
            PRAGMA wal_checkpoint(TRUNCATE)
            """)
        _ = try damageLeaf(of: name)
        let events = Events()
        let store = try SQLiteTokenStore(at: data, events: events) {
            $0.retention = Retention(afterExpired: .seconds(60))
        }
        defer { store.close() }
        let report = try await SQLiteAdministrator(store).walk { _ in }
        // The round that began at the start may have deleted some of them.
        #expect(!report.damages.isEmpty && store.state.metrics.expired.value > 1_500)
        #expect(!events.all.contains { if case .writesFail = $0 { true } else { false } })
    }

    @Test func `what a walk cannot change for want of room is no fault of clients' writes`() async throws {
        try await makeStore(of: 20)
        let events = Events()
        let store = try SQLiteTokenStore(at: data, events: events) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        _ = try await administrator.addKey()
        try await store.perform { writer in
            try writer.connection.execute(
                """
                CREATE TEMP TRIGGER refusal BEFORE UPDATE OF key_number ON token WHEN old.version = new.version
                BEGIN SELECT RAISE(ABORT, 'no room'); END
                """)
        }
        await #expect(throws: StoreError.self) { try await administrator.walk { _ in } }
        await administrator.fill(20..<21)
        #expect(!events.all.contains { if case .writesFail = $0 { true } else { false } })
        try await store.perform { try $0.connection.execute("DROP TRIGGER refusal") }
        #expect(try await administrator.walk { _ in }.keyNumbers == [2])
    }

    @Test func `no key is retired while a page that may hold its rows cannot be read`() async throws {
        try await makeStore(of: 500)
        let damaged = try damageLeaf(of: "token")
        var store = try open()
        _ = try await SQLiteAdministrator(store).addKey()
        let report = try await SQLiteAdministrator(store).walk { _ in }
        #expect(report.damages.count == 1 && report.tokens < 500)
        await #expect(throws: StoreError.self) { try await SQLiteAdministrator(store).retireKey(numbered: 1) }
        store.close()
        // The disk reads the page again.
        try write(damaged.bytes, at: damaged.offset)
        store = try open()
        defer { store.close() }
        #expect(try await SQLiteAdministrator(store).walk { _ in }.isSound)
        try await SQLiteAdministrator(store).retireKey(numbered: 1)
    }

    @Test func `a round that a stop has interrupted goes on where it was`() async throws {
        try await makeStore(of: 600)
        var state = WalkState()
        state.place = "\(Int64.max)"
        state.present.tokens = 600
        try SQLiteConnection(path: path, mode: .readWrite).execute(
            "INSERT OR REPLACE INTO walk VALUES (1, CAST('\(state.text)' AS BLOB))")
        let store = try open(isServing: true)
        defer { store.close() }
        try await eventually { store.walker.state.last != nil }
        #expect(store.walker.state.last?.tokens == 600 && store.walker.state.last?.sessions == 60)
    }

    @Test(arguments: ["present.round", "present.tokens", "last.endedAt", "last.expired"])
    func `a state with a number that nothing can be added to is not used`(_ member: String) async throws {
        try await makeStore(of: 20)
        let first = try open()
        _ = try await SQLiteAdministrator(first).walk { _ in }
        first.close()
        try SQLiteConnection(path: path, mode: .readWrite).execute(
            "UPDATE walk SET state = CAST(json_set(CAST(state AS TEXT), '$.\(member)', \(Int64.max)) AS BLOB)")
        let store = try open()
        defer { store.close() }
        #expect(try await SQLiteAdministrator(store).walk { _ in }.tokens == 20)
    }

    @Test func `a store of version 1.0 takes tokens although an index of its retention is damaged`()
        async throws
    {
        try await makeStore(of: 2_000)
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        try connection.execute(
            """
            DROP TABLE walk;
            -- So that the new token gets its entry at the end of the index.
            UPDATE token SET written_at = 1;
            CREATE INDEX token_by_writing ON token (written_at);
            PRAGMA wal_checkpoint(TRUNCATE)
            """)
        _ = try damageLeaf(of: "token_by_writing")
        let store = try open()
        defer { store.close() }
        await SQLiteAdministrator(store).fill(2_000..<2_001)
        #expect(try await SQLiteAdministrator(store).walk { _ in }.tokens == 2_001)
    }
}
