import Foundation
import StoreConformance
import TestSupport
import Testing
import TokenStore

@testable import SQLiteStore

@Suite struct ErasingTests {
    private let folder: TemporaryDirectory
    private let events = Events()

    init() throws {
        folder = try TemporaryDirectory()
    }

    private var data: String { folder.path + "/data" }

    /// The contents of all files of the data folder, by their names.
    private func files() throws -> [String: Data] {
        var files: [String: Data] = [:]
        for name in try FileManager.default.contentsOfDirectory(atPath: data) {
            files[name] = FileManager.default.contents(atPath: data + "/" + name)
        }
        return files
    }

    /// How often each of some texts of 16 bytes or more is in the files; in one pass, as there are many.
    private func occurrences(of texts: Set<[UInt8]>) throws -> [[UInt8]: Int] {
        let byBeginning = Dictionary(grouping: texts) { text in
            text.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
        }
        // Most places are ruled out by two bytes.
        var beginnings = [Bool](repeating: false, count: 1 << 16)
        for beginning in byBeginning.keys { beginnings[Int(beginning & 0xffff)] = true }
        var counts: [[UInt8]: Int] = [:]
        for content in try files().values where content.count >= 8 {
            content.withUnsafeBytes { content in
                func mayBegin(at offset: Int) -> Bool {
                    beginnings[Int(content.loadUnaligned(fromByteOffset: offset, as: UInt16.self))]
                }
                for offset in 0...(content.count - 8) where mayBegin(at: offset) {
                    let beginning = content.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                    for text in byBeginning[beginning] ?? [] where content[offset...].starts(with: text) {
                        counts[text, default: 0] += 1
                    }
                }
            }
        }
        return counts
    }

    /// The beginning and the end of some bytes; nothing of less than 16, which could be there by chance.
    private static func pieces(_ bytes: [UInt8]) -> [[UInt8]] {
        bytes.count < 16 ? [] : [Array(bytes.prefix(32)), Array(bytes.suffix(32))]
    }

    /// A text of random length that no other token has.
    private static func info(_ number: Int, _ generator: inout SeededGenerator) -> String {
        let length = [40, 200, 700, 1_500, 3_000].randomElement(using: &generator) ?? 40
        return "canary-\(number)-" + String(repeating: "of \(number).", count: length / 8)
    }

    /// A store that was written in random order, so that SQLite has distributed its pages anew many times.
    private func store(isSealed: Bool, _ count: Int) async throws -> (SQLiteTokenStore, [String]) {
        let store = try SQLiteTokenStore(at: data, events: events) { $0.isSealed = isSealed }
        var generator = SeededGenerator(seed: 19)
        let users = (0..<count).map { "user-\($0)-\(UInt64.random(in: .min ... .max, using: &generator))@example.com" }
        let administrator = SQLiteAdministrator(store)
        try await write(users, to: store, &generator)
        // Replaced by longer and shorter ones.
        for (number, user) in users.enumerated() where number.isMultiple(of: 3) {
            let token = Token(id: Array(user.utf8), info: Array(Self.info(number, &generator).utf8))
            for outcome in await administrator.store([(token, nil)]) { try outcome.get() }
        }
        return (store, users)
    }

    /// Writes a token of each user, with another length than before.
    private func write(
        _ users: [String], to store: SQLiteTokenStore, _ generator: inout SeededGenerator
    ) async throws {
        for start in stride(from: 0, to: users.count, by: 100) {
            let tokens = users[start..<min(start + 100, users.count)].enumerated().map { index, user in
                (
                    token: Token(id: Array(user.utf8), info: Array(Self.info(start + index, &generator).utf8)),
                    writtenAt: Int64?.none
                )
            }
            for outcome in await SQLiteAdministrator(store).store(tokens) { try outcome.get() }
        }
    }

    private func checkpoint(_ store: SQLiteTokenStore) async throws {
        _ = try await store.writerThread.perform { (writer) throws(SQLiteError) in try writer.checkpoint(waiting: 200) }
    }

    @Test("nothing of an erased user is in any file", arguments: [false, true])
    func nothingIsLeft(_ isSealed: Bool) async throws {
        let (store, users) = try await store(isSealed: isSealed, 2_000)
        defer { store.close() }
        let handle = try await ConformanceHandle.open(store)
        for user in users.prefix(20) {
            for number in 0..<3 { try await handle.begin("secret \(number) of \(user)", of: user) }
        }
        try await checkpoint(store)
        var coder = RowCoder(store.state.sealing)
        let keys = try users.map { user in
            var key = RowKey()
            try coder.key(of: Array(user.utf8), into: &key)
            return key.bytes
        }
        let sessions = 20
        // SQLite leaves copies of some rows that have moved: of which, and whether of any, depends on the store's random key.
        var copies = try occurrences(of: Set(keys))
        var generator = SeededGenerator(seed: 20)
        var round = 0
        while round < 100, !users.indices.contains(where: { $0 >= sessions && copies[keys[$0]] ?? 0 > 1 }) {
            round += 1
            try await write(users, to: store, &generator)
            try await checkpoint(store)
            copies = try occurrences(of: Set(keys))
        }
        // What the rows hold, by the keys of the users' rows: in the clear the text itself, otherwise hashes and sealed values.
        let rows = try await store.writerThread.perform { (writer) throws(SQLiteError) -> [[UInt8]: [[UInt8]]] in
            var rows: [[UInt8]: [[UInt8]]] = [:]
            let tokens = try SQLiteStatement("SELECT key, value FROM token", on: writer.connection)
            while try tokens.step() { rows[tokens.blob(at: 0)] = [tokens.blob(at: 0), tokens.blob(at: 1)] }
            let sessions = try SQLiteStatement("SELECT user_key, key, id, user FROM session", on: writer.connection)
            while try sessions.step() {
                rows[sessions.blob(at: 0), default: []] += [1, 2, 3].map { sessions.blob(at: $0) }
            }
            return rows
        }
        // Those with copies are erased in any case.
        let erased = Set(users.indices.filter { $0 < sessions || copies[keys[$0]] ?? 0 > 1 })
        #expect(erased.count > sessions, "there are no copies")
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in erased {
                group.addTask {
                    let erasure = try await handle.erase(users[number])
                    #expect(erasure == Erasure(hadToken: true, sessions: number < sessions ? 3 : 0))
                }
            }
            try await group.waitForAll()
        }
        var texts: Set<[UInt8]> = []
        for number in erased {
            texts.insert(Array(users[number].utf8))
            texts.insert(Array("canary-\(number)-of \(number).of".utf8.prefix(16)))
            for bytes in rows[keys[number]] ?? [] { texts.formUnion(Self.pieces(bytes)) }
        }
        #expect(texts.count > 4 * erased.count)
        #expect(try occurrences(of: texts).isEmpty)
        // The others are as they were.
        for number in users.indices where !erased.contains(number) && number.isMultiple(of: 50) {
            #expect(try await handle.get(users[number]) != nil)
        }
        let verification = try await SQLiteAdministrator(store).verify { _ in }
        #expect(verification.isSound && verification.tokens == users.count - erased.count)
    }

    @Test("copies of damaged WALs and of interrupted backups go with a user, other files stay")
    func copies() async throws {
        let store = try SQLiteTokenStore(at: data, events: events) { $0.isSealed = false }
        defer { store.close() }
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("info", under: "anna")
        try await checkpoint(store)
        let manager = FileManager.default
        try manager.copyItem(atPath: data + "/tokens.db", toPath: data + "/tokens.db-wal.damaged-20260101T000000Z")
        try manager.copyItem(atPath: data + "/tokens.db", toPath: data + "/backup.db.partial")
        try Data("anna".utf8).write(to: URL(filePath: data + "/notes.partial"))
        try await handle.erase("anna")
        let names = try files().keys.filter { $0.contains("partial") || $0.contains("damaged") }
        #expect(names == ["notes.partial"], "a file of another program stays")
        // A removed file takes room as long as it is open.
        let open = try manager.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
            try? manager.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
        }
        #expect(!open.contains { $0.hasPrefix(data) && $0.hasSuffix(" (deleted)") })
        #expect(events.all.contains { $0.says("tokens.db-wal.damaged-20260101T000000Z") })
    }

    @Test("an erasure that cannot be recorded is not acknowledged, and can be repeated")
    func unrecorded() async throws {
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("info", under: "anna")
        try FileManager.default.createDirectory(atPath: data + "/erasures", withIntermediateDirectories: false)
        await #expect(throws: StoreError.self) { try await handle.erase("anna") }
        try FileManager.default.removeItem(atPath: data + "/erasures")
        #expect(try await handle.erase("anna") == Erasure(hadToken: false, sessions: 0))
        #expect(try #require(try files()["erasures"]).count > 0)
    }

    @Test("what removed rows have left is erased from all pages, also without a pointer map", arguments: [0, 2])
    func everyPage(autoVacuum: Int) throws {
        let path = folder.path + "/pages.db"
        let connection = try SQLiteConnection(path: path, mode: .readWriteCreate)
        try connection.execute(
            """
            PRAGMA auto_vacuum = \(autoVacuum); PRAGMA secure_delete = OFF;
            CREATE TABLE kept (text); INSERT INTO kept VALUES ('kept'), ('canary of a row');
            CREATE TABLE canary_of_the_first_page (text);
            DROP TABLE canary_of_the_first_page; DELETE FROM kept WHERE text <> 'kept'
            """)
        func contains(_ text: String) throws -> Bool {
            try Data(contentsOf: URL(filePath: path)).range(of: Data(text.utf8)) != nil
        }
        #expect(try contains("canary_of_the_first_page") && contains("canary of a row"))
        try DatabasePages(connection).eraseAll()
        #expect(try !contains("canary"))
        #expect(try connection.text("SELECT text FROM kept") == "kept")
        try connection.checkIntegrity()
    }

    @Test("the gap of a page is what lies between its pointers and its cells, and nothing for other pages")
    func gaps() {
        func page(_ kind: UInt8, cells: [Int], contents: Int) -> [UInt8] {
            var page = [UInt8](repeating: 0, count: 512)
            page[0] = kind
            page[3...6] = [0, UInt8(cells.count), UInt8(contents >> 8), UInt8(contents & 255)]
            let start = kind == 2 || kind == 5 ? 12 : 8
            for (index, cell) in cells.enumerated() {
                page[start + 2 * index] = UInt8(cell >> 8)
                page[start + 2 * index + 1] = UInt8(cell & 255)
            }
            return page
        }
        #expect(PageGap(of: page(13, cells: [500, 490], contents: 490).span, pageNumber: 2).range == 12..<490)
        #expect(PageGap(of: page(5, cells: [500], contents: 400).span, pageNumber: 2).range == 14..<400)
        #expect(PageGap(of: page(0, cells: [], contents: 400).span, pageNumber: 2).range.isEmpty)
        #expect(PageGap(of: page(13, cells: [300], contents: 400).span, pageNumber: 2).range.isEmpty, "not a real page")
        #expect(PageGap(of: page(13, cells: [500], contents: 600).span, pageNumber: 2).range.isEmpty, "not a real page")
        #expect(PageGap(of: page(13, cells: [500], contents: 5).span, pageNumber: 2).range.isEmpty, "not a real page")
    }
}
