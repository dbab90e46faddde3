import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct ConversionTests {
    private let folder: TemporaryDirectory
    private let data: String
    private let events = Events()

    init() throws {
        folder = try TemporaryDirectory()
        data = folder.path + "/data"
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
    }

    private var path: String { data + "/tokens.db" }

    /// The tables of the earlier versions.
    private static let tables = [
        1: """
        CREATE TABLE token (
            key BLOB NOT NULL PRIMARY KEY,
            value BLOB NOT NULL,
            written_at INTEGER NOT NULL
        ) STRICT
        """,
        2: """
        CREATE TABLE token (
            key BLOB NOT NULL PRIMARY KEY,
            written_at INTEGER NOT NULL,
            expires_at INTEGER,
            key_number INTEGER NOT NULL,
            value BLOB NOT NULL
        ) STRICT;
        CREATE TABLE store (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            key_ring BLOB,
            tokens INTEGER NOT NULL
        ) STRICT;
        INSERT INTO store (one, key_ring, tokens) VALUES (1, NULL, 0)
        """,
    ]

    /// A database as an earlier version has left it, with a log.
    private func database(version: Int, _ rows: String) throws {
        let connection = try SQLiteConnection(path: path, mode: .readWriteCreate)
        _ = try connection.text("PRAGMA journal_mode = WAL")
        try connection.execute(
            """
            \(Self.tables[version] ?? "");
            PRAGMA application_id = \(Schema.applicationID);
            PRAGMA user_version = \(version);
            \(rows)
            """
        )
    }

    @Test("a database of the first version is taken over, in the clear and with its tokens")
    func first() async throws {
        try database(version: 1, "INSERT INTO token (key, value, written_at) VALUES (x'61', x'31', 77)")
        #expect(throws: SQLiteOpenError.notSealed(path: path)) { try SQLiteTokenStore(at: data) }
        let store = try SQLiteTokenStore(at: data) { $0.isSealed = false }
        defer { store.close() }
        #expect(try await SessionActor.open(store).get("a") == "1")
        let administrator = StoreAdministrator(store)
        #expect(try await administrator.page(after: 0, limit: 9).entries.map(\.writtenAt) == [77])
        #expect(try await administrator.statistics().tokens == 1)
    }

    /// A database of version 2 with the tokens of one of this version.
    private func secondVersion(_ count: Int, isSealed: Bool) async throws {
        let store = try SQLiteTokenStore(at: data) { $0.isSealed = isSealed }
        let tokens = (0..<count).map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64($0)) }
        for case .failure(let error) in await StoreAdministrator(store).store(tokens.map { ($0.0, $0.1) }) {
            throw error
        }
        store.close()
        if isSealed { try EarlierForm.setBack(data) }
        try FileManager.default.moveItem(atPath: path, toPath: path + ".3")
        try database(
            version: 2,
            """
            CREATE INDEX token_by_writing ON token (written_at);
            ATTACH '\(path).3' AS new;
            INSERT INTO token (key, written_at, expires_at, key_number, value)
            SELECT key, written_at, written_at + 9, key_number, value FROM new.token ORDER BY written_at;
            UPDATE store SET tokens = new.tokens, key_ring = new.key_ring FROM new.store AS new;
            """
        )
        try FileManager.default.removeItem(atPath: path + ".3")
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
            let administrator = StoreAdministrator(store)
            let verification = try await administrator.verify { _ in }
            #expect(verification.isSound && verification.tokens == count)
            var found: [Int: StoreAdministrator.Entry] = [:]
            for entry in try await administrator.page(after: 0, limit: 10_000).entries {
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
            let session = try await SessionActor.open(store)
            #expect(try await session.get("id\(count - 1)") == "info\(count - 1)")
            try await session.put("info0", under: "id0")
            #expect(try await administrator.statistics().tokens == count)
            _ = await administrator.store([(Token(id: Array("id0".utf8), info: Array("info0".utf8)), 0)])
            store.close()
            #expect(events.all.filter { $0 == .converting(path: path) }.count == 1, "the first time: \(isFirst)")
        }
        let connection = try SQLiteConnection(path: path, mode: .readOnly)
        #expect(try connection.integer("PRAGMA user_version") == Schema.version)
        #expect(
            try connection.text("SELECT group_concat(name) FROM sqlite_schema WHERE type = 'index'")
                == "token_by_expiration")
    }

    /// Makes a store that nobody has open one of version 3.
    private func setBackToThirdVersion() throws {
        try EarlierForm.setBack(data)
        try SQLiteConnection(path: path, mode: .readWrite).execute(
            "ALTER TABLE store DROP COLUMN looked_at; DROP TABLE seal; PRAGMA user_version = 3")
    }

    @Test(
        "a store of the third version becomes one of this in its place, and rekey binds its rows to their times",
        arguments: [true, false])
    func third(addsKey: Bool) async throws {
        let count = 1_000
        let first = try SQLiteTokenStore(at: data)
        let tokens = (0..<count).map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64?(7)) }
        _ = await StoreAdministrator(first).store(tokens)
        first.close()
        try setBackToThirdVersion()
        let store = try SQLiteTokenStore(at: data, events: events)
        let administrator = StoreAdministrator(store)
        #expect(events.all == [.upgraded(path: path, from: 3, to: Schema.version)])
        #expect(try await administrator.keys().map(\.bindsTimes) == [false])
        var verification = try await administrator.verify { _ in }
        #expect(verification.isSound && verification.unbound == count)
        let session = try await SessionActor.open(store)
        try await session.put("new", under: "id0")
        #expect(try await administrator.verify { _ in }.unbound == count - 1)
        if addsKey { #expect(try await administrator.addKey().bindsTimes) }
        let rekeying = try await administrator.rekey { _ in }
        #expect(rekeying.resealed == (addsKey ? count : count - 1) && rekeying.unreadable == 0)
        #expect(try await administrator.rekey { _ in }.resealed == 0)
        verification = try await administrator.verify { _ in }
        #expect(verification.isSound && verification.unbound == 0 && verification.tokens == count)
        if addsKey { try await administrator.retireKey(numbered: 1) }
        #expect(try await administrator.keys().map(\.bindsTimes) == [addsKey])
        #expect(try await session.get("id7") == "info7")
        let times = try await administrator.page(after: 0, limit: count).entries.map(\.writtenAt)
        #expect(times.filter { $0 == 7 }.count == count - 1)
        store.close()
        let again = try SQLiteTokenStore(at: data, events: events)
        defer { again.close() }
        #expect(events.all.count == 1)
        #expect(try await StoreAdministrator(again).verify { _ in }.isSound)
    }

    @Test("a row of the third version's form does not open once its key is retired, not even as one of the new key's")
    func putBack() async throws {
        let first = try SQLiteTokenStore(at: data)
        _ = await StoreAdministrator(first).store([(Token(id: [65], info: [66]), 7)])
        first.close()
        try setBackToThirdVersion()
        let earlier = try SQLiteConnection(path: path, mode: .readWrite)
        let value = try earlier.text("SELECT hex(value) FROM token")
        let store = try SQLiteTokenStore(at: data)
        let administrator = StoreAdministrator(store)
        _ = try await administrator.addKey()
        _ = try await administrator.rekey { _ in }
        try await administrator.retireKey(numbered: 1)
        store.close()
        for (number, error) in [(2, SealingError.tampered(keyNumber: 2)), (1, .missingKey(number: 1))] {
            try SQLiteConnection(path: path, mode: .readWrite).execute(
                "UPDATE token SET value = x'\(value)', key_number = \(number)")
            let forged = try SQLiteTokenStore(at: data)
            await #expect(throws: StoreError.sealing(error)) { try await SessionActor.open(forged).get("A") }
            forged.close()
        }
    }

    @Test("what the options refuse of the third version stays as it is, and a backup of it can be restored")
    func thirdElsewhere() async throws {
        let first = try SQLiteTokenStore(at: data)
        _ = await StoreAdministrator(first).store([(Token(id: [65], info: [66]), 7)])
        first.close()
        try setBackToThirdVersion()
        let backup = folder.path + "/backup"
        try SQLiteConnection(path: path, mode: .readWrite).execute("VACUUM INTO '\(backup)'")
        #expect(throws: SQLiteOpenError.sealed(path: path)) {
            try SQLiteTokenStore(at: data) { $0.isSealed = false }
        }
        #expect(try SQLiteConnection(path: path, mode: .readOnly).integer("PRAGMA user_version") == 3)
        let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        let replacement = try StoreReplacement(directory: data, options: options) { _ in }
        #expect(try replacement.restore(backup) { _ in }.tokens == 1)
        #expect(try replacement.convert(isSealed: false) { _ in }.tokens == 1)
        #expect(try replacement.convert(isSealed: true) { _ in }.tokens == 1)
        _ = consume replacement
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        #expect(try await SessionActor.open(store).get("A") == "B")
        let verification = try await StoreAdministrator(store).verify { _ in }
        #expect(verification.isSound && verification.unbound == 0)
    }

    /// Does something with a store in the clear that nobody has open.
    private func replacing(
        _ body: (borrowing StoreReplacement) throws(StoreError) -> StoreReplacement.Outcome
    ) throws -> StoreReplacement.Outcome {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        options.isSealed = false
        return try body(try StoreReplacement(directory: data, options: options) { _ in })
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

    @Test("a backup of the second version can be restored, and a store of it sealed")
    func replacements() async throws {
        try await secondVersion(100, isSealed: false)
        let backup = folder.path + "/backup"
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        try connection.execute("VACUUM INTO '\(backup)'")
        for _ in 0..<2 {
            #expect(
                try replacing { (store) throws(StoreError) in try store.convert(isSealed: true) { _ in } }.tokens == 100
            )
            let store = try SQLiteTokenStore(at: data)
            #expect(try await SessionActor.open(store).get("id99") == "info99")
            #expect(try await StoreAdministrator(store).verify { _ in }.isSound)
            store.close()
            #expect(try replacing { (store) throws(StoreError) in try store.restore(backup) { _ in } }.tokens == 100)
            let restored = try SQLiteTokenStore(at: data) { $0.isSealed = false }
            #expect(try await SessionActor.open(restored).get("id99") == "info99")
            #expect(try await StoreAdministrator(restored).verify { _ in }.isSound)
            restored.close()
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: data).allSatisfy { !$0.contains("new") })
        #expect(try SQLiteConnection(path: backup, mode: .readOnly).integer("PRAGMA user_version") == 2)
    }

    @Test("what the options refuse is refused before anything is converted")
    func refused() async throws {
        for isSealed in [true, false] {
            try await secondVersion(10, isSealed: isSealed)
            #expect(throws: isSealed ? SQLiteOpenError.sealed(path: path) : .notSealed(path: path)) {
                try SQLiteTokenStore(at: data, events: events) { $0.isSealed = !isSealed }
            }
            if isSealed {
                try FileManager.default.moveItem(atPath: data + "/keys", toPath: data + "/keys.away")
                #expect(throws: SQLiteOpenError.self) { try SQLiteTokenStore(at: data, events: events) }
            }
            let connection = try SQLiteConnection(path: path, mode: .readWrite)
            #expect(try connection.integer("PRAGMA user_version") == 2)
            try FileManager.default.removeItem(atPath: data)
            try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
        }
        #expect(events.all.isEmpty)
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
        let cells = UInt64((root - 1) * 4_096 + 3)
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
            #expect(try await SessionActor.open(store).get("id19") == "info19")
            store.close()
            let files = try FileManager.default.contentsOfDirectory(atPath: folder)
            #expect(files.allSatisfy { !$0.contains("new") }, "\(files)")
        }
        #expect(try SQLiteConnection(path: path, mode: .readWrite).integer("PRAGMA user_version") == Schema.version)
    }

    @Test("what a restore has left that was cut off in a conversion goes with the next start")
    func leftovers() throws {
        for suffix in [".new", ".new-wal", ".new.new", ".new.new-journal"] {
            #expect(FileManager.default.createFile(atPath: path + suffix, contents: Data("secret".utf8)))
        }
        try SQLiteTokenStore(at: data).close()
        #expect(try FileManager.default.contentsOfDirectory(atPath: data).allSatisfy { !$0.contains("new") })
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
