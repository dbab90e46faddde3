import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct ConversionTests: EarlierVersionSuite {
    let folder: TemporaryDirectory
    let events = Events()

    init() throws {
        folder = try TemporaryDirectory()
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
    }

    @Test("a database of the first version is taken over, in the clear and with its tokens")
    func first() async throws {
        try database(version: 1, "INSERT INTO token (key, value, written_at) VALUES (x'61', x'31', 77)")
        #expect(throws: SQLiteOpenError.notSealed(path: path)) { try SQLiteTokenStore(at: data) }
        let store = try SQLiteTokenStore(at: data) { $0.isSealed = false }
        defer { store.close() }
        #expect(try await ConformanceHandle.open(store).get("a") == "1")
        let administrator = SQLiteAdministrator(store)
        #expect(try await administrator.page(after: nil, limit: 9).entries.map(\.writtenAt) == [77])
        #expect(try await administrator.statistics().tokens == 1)
    }

    @Test(
        "a database of the second version is taken over with all that it says of its tokens", arguments: [true, false])
    func second(_ isSealed: Bool) async throws {
        let count = 3_000
        try await secondVersion(count, isSealed: isSealed)
        for isFirst in [true, false] {
            let store = try SQLiteTokenStore(at: data, events: events) {
                ($0.isSealed, $0.retention) = (isSealed, Retention(sinceExpired: .seconds(1 << 40)))
            }
            let administrator = SQLiteAdministrator(store)
            let verification = try await administrator.verify { _ in }
            #expect(verification.isSound && verification.tokens == count)
            var found: [Int: TokenPage.Entry] = [:]
            for entry in try await administrator.page(after: nil, limit: 10_000).entries {
                let token = try entry.token.get()
                found[try #require(Int(String(decoding: token.id.dropFirst(2), as: UTF8.self)))] = entry
                #expect(token.info == Array("info".utf8) + token.id.dropFirst(2))
            }
            #expect(found.count == count)
            // The one that was written anew states no expiration.
            #expect(
                found.allSatisfy {
                    $1.writtenAt == $0 && $1.expiresAt == ($0 == 0 && !isFirst ? nil : Int64($0) + 9)
                }
            )
            let handle = try await ConformanceHandle.open(store)
            #expect(try await handle.get("id\(count - 1)") == "info\(count - 1)")
            try await handle.put("info0", under: "id0")
            #expect(try await administrator.statistics().tokens == count)
            _ = await administrator.store([(Token(id: Array("id0".utf8), info: Array("info0".utf8)), 0)])
            store.close()
            #expect(events.all.filter { $0 == .converting(path: path) }.count == 1, "the first time: \(isFirst)")
        }
        let connection = try SQLiteConnection(path: path, mode: .readOnly)
        #expect(try connection.integer("PRAGMA user_version") == Schema.version)
        #expect(
            try connection.text(
                "SELECT group_concat(name) FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'token'")
                == "token_by_expiration")
    }

    @Test(
        "it is told how far a conversion has come, as often as was asked for",
        arguments: [(Duration.zero, [1_024, 2_048]), (.seconds(3_600), [])])
    func progress(interval: Duration, expected: [Int]) async throws {
        try await secondVersion(3_000, isSealed: true)
        var told: [Int] = []
        try SchemaConversion(path, from: 2, reportInterval: interval) { told.append($0) }.run()
        #expect(told == expected)
    }

    @Test(
        "of a database whose table and index differ nothing is converted",
        arguments: ["token", "sqlite_autoindex_token_1"]
    )
    func damaged(_ tree: String) async throws {
        try await secondVersion(50, isSealed: false)
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        _ = try connection.integer("SELECT count(*) FROM token")
        #expect(try connection.checkpoint(.truncate, waiting: 0) == .complete)
        let root = try connection.integer("SELECT rootpage FROM sqlite_schema WHERE name = '\(tree)'")
        // The number of the page's cells (sqlite.org/fileformat2.html, section 1.6).
        let cells = UInt64((root - 1) * (try connection.integer("PRAGMA page_size")) + 3)
        let file = try FileHandle(forUpdating: URL(filePath: path))
        try file.seek(toOffset: cells)
        let count = try #require(try file.read(upToCount: 2)).reduce(0) { $0 << 8 | Int($1) }
        try #require(count == 50)
        try file.seek(toOffset: cells)
        try file.write(contentsOf: [0, UInt8(count - 1)])
        try file.close()
        do {
            try SQLiteTokenStore(at: data) { $0.isSealed = false }.close()
            Issue.record("it was converted")
        } catch SQLiteOpenError.conversion(_, let reason) {
            #expect(reason.contains("do not hold the same tokens"))
        }
        let backup = folder.path + "/backup"
        try FileManager.default.copyItem(atPath: path, toPath: backup)
        do {
            _ = try replacing { (store) throws(StoreError) in try store.restore(backup) { _ in } }
            Issue.record("it was restored")
        } catch StoreError.refused(let reason) {
            #expect(reason.hasPrefix("\(backup) is damaged: "))
        }
        #expect(try SQLiteConnection(path: path, mode: .readWrite).integer("PRAGMA user_version") == 2)
    }

    @Test("any folder will do, and a link to the database stays one")
    func paths() async throws {
        try await secondVersion(20, isSealed: false)
        for name in ["it's", "it'\u{301}s", "a?b%20#c;", "ÿ \"x\"", "link"] {
            let folder = folder.path + "/" + name
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            let database = folder + "/tokens.db"
            if name == "link" {
                try FileManager.default.createSymbolicLink(atPath: database, withDestinationPath: path)
            } else {
                for suffix in ["", "-wal"] {
                    try FileManager.default.copyItem(atPath: path + suffix, toPath: database + suffix)
                }
            }
            let store = try SQLiteTokenStore(at: folder) { $0.isSealed = false }
            #expect(try await ConformanceHandle.open(store).get("id19") == "info19")
            store.close()
            let files = try FileManager.default.contentsOfDirectory(atPath: folder)
            #expect(files.allSatisfy { !$0.contains("new") }, "\(files)")
        }
        #expect(try SQLiteConnection(path: path, mode: .readWrite).integer("PRAGMA user_version") == Schema.version)
    }

    @Test("rows whose ids have the same slots are all taken over")
    func crowds() throws {
        // As in a sealed store, whose keys are hashes.
        try database(
            version: 2,
            """
            UPDATE store SET key_ring = x'01', tokens = 3;
            INSERT INTO token (key, written_at, key_number, value) VALUES
            (x'0000000004000001', 1, 1, x'01'), (x'0000000004000002', 2, 1, x'02'), (x'0000000008000040', 3, 1, x'03')
            """
        )
        try SchemaConversion(path, from: 2) { _ in }.run()
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        let select = try SQLiteStatement("SELECT slot, key, value FROM token ORDER BY slot", on: connection)
        var found: [[Int]] = []
        while try select.step() {
            found.append([select.integer(at: 0), Int(select.blob(at: 1).last ?? 0), Int(select.blob(at: 2)[0])])
        }
        #expect(found == [[17, 1, 1], [18, 2, 2], [33, 0x40, 3]])
    }

    @Test("a conversion that cannot be finished leaves the database as it was, and nothing beside it")
    func cutOff() async throws {
        try await secondVersion(30, isSealed: true)
        try SQLiteConnection(path: path, mode: .readWrite).execute("UPDATE store SET key_ring = NULL, tokens = -1")
        // A row that no table of this version takes.
        try SQLiteConnection(path: path, mode: .readWrite).execute(
            """
            ALTER TABLE token RENAME TO strict_token;
            CREATE TABLE token AS SELECT * FROM strict_token;
            INSERT INTO token (key, written_at, key_number, value) VALUES (x'ff', 'yesterday', 1, x'01')
            """
        )
        let store = { try SQLiteTokenStore(at: data, events: events) { $0.isSealed = false } }
        do {
            try store().close()
            Issue.record("it was converted")
        } catch SQLiteOpenError.conversion(let found, let reason) {
            #expect(found == path && reason.contains("cannot store TEXT value in INTEGER column"))
        }
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        #expect(try connection.integer("PRAGMA user_version") == 2)
        #expect(try connection.integer("SELECT count(*) FROM token") == 31)
        let files = try FileManager.default.contentsOfDirectory(atPath: data)
        #expect(files.allSatisfy { !$0.contains("new") }, "\(files)")
        try connection.execute("DELETE FROM token WHERE key = x'ff'")
        try store().close()
        #expect(try SQLiteConnection(path: path, mode: .readWrite).integer("PRAGMA user_version") == Schema.version)
    }
}
