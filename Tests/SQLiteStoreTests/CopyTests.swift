import Cryptography
import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct CopyTests {
    private let folder = TemporaryDirectory()

    /// Options of a store with a key ring of its own, as a first start makes it.
    private func options(_ name: String) -> StoreOptions { StoreOptions(in: path(name)) }

    private func path(_ name: String) -> String { folder.path + "/" + name }

    @discardableResult
    private func copy(
        _ source: String, to target: String, skipsUnreadable: Bool = false,
        _ progress: @escaping (StoreCopy.Stage, StoreProgress, SQLiteCopyTarget) -> Void = { _, _, _ in }
    ) throws -> CopySummary {
        let from = try DataDirectory(path: path(source), creates: false)
        let to = try DataDirectory(path: path(target), creates: true)
        defer { for directory in [from, to] { directory.unlock() } }
        let reader = try SQLiteCopySource(in: from, options: options(source))
        let filler = try SQLiteCopyTarget(in: to, options: options(target))
        return try StoreCopy(from: reader, to: filler) { progress($0, $1, filler) }.run(
            skipsUnreadable: skipsUnreadable)
    }

    private func sql(_ name: String, _ text: String) throws {
        let connection = try SQLiteConnection(path: path(name) + "/tokens.db", mode: .readWrite)
        try connection.execute(text)
        // As programs do that close a database.
        _ = try connection.checkpoint(.truncate, waiting: 0)
    }

    @Test func `a copy has everything, sealed with another ring`() async throws {
        let first = try SQLiteTokenStore(at: path("0"))
        let tokens = (0..<2_500).map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64?(7)) }
        _ = await SQLiteAdministrator(first).store(tokens)
        let handle = try await WaitingHandle.open(first)
        var versions = [try await handle.put("info", under: "anna", if: .any)]
        for number in 1...3 { try await handle.begin("secret \(number)", of: "anna") }
        let sessions = try await handle.list("anna")
        first.close()
        try sql("0", "UPDATE store SET looked_at = 1000")
        for source in 0..<2 {
            let target = "\(source + 1)"
            var stages: [StoreCopy.Stage] = []
            let summary = try copy("\(source)", to: target) { stage, progress, _ in
                if stages.last != stage { stages.append(stage) }
                #expect(progress.total == 2_504 && progress.done <= 2_504)
            }
            #expect(summary.copied == CopyCount(tokens: 2_501, sessions: 3) && summary.isComplete)
            #expect(stages == [.copying, .ordering, .verifying])
            let connection = try SQLiteConnection(path: path(target) + "/tokens.db", mode: .readWrite)
            #expect(try connection.integer("SELECT looked_at FROM store") == 1_000)
            let limit = try connection.integer("SELECT version_limit FROM store")
            #expect(limit >= versions[0].rawValue)
            let store = try SQLiteTokenStore(at: path(target))
            let (administrator, handle) = (SQLiteAdministrator(store), try await WaitingHandle.open(store))
            #expect(try await administrator.info("id2499") == "info2499")
            let page = try await administrator.page(after: nil, limit: 3_000)
            let entry = try #require(page.entries.first { (try? $0.token.get().id) == Array("id7".utf8) })
            #expect(entry.times.writtenAt == 7)
            #expect(try await administrator.verify { _ in }.isSound)
            #expect(try await handle.list("anna") == sessions)
            #expect(try await handle.find("secret 2") == sessions[1])
            #expect(try await handle.version(of: "anna") == versions[source], "the token is the same")
            versions.append(try await handle.put("info", under: "anna", if: .any))
            #expect(versions[source + 1] > versions[source])
            store.close()
            let file = try Data(contentsOf: URL(filePath: path(target) + "/tokens.db"))
            #expect(file.range(of: Data("info1234".utf8)) == nil)
            let files = try FileManager.default.contentsOfDirectory(atPath: path(target))
            #expect(files.allSatisfy { !$0.contains(".new") })
        }
    }

    /// Makes the folder `clear` with a store in the clear.
    private func makeClearStore() throws {
        try FileManager.default.createDirectory(atPath: path("clear"), withIntermediateDirectories: false)
        try FileManager.default.copyItem(atPath: Fixtures.clearStore, toPath: path("clear") + "/tokens.db")
        // The fixture is a backup, whose sessions would be left out.
        try sql("clear", "PRAGMA journal_mode = WAL")
    }

    @Test func `a store in the clear, of version 1.0, is not opened, and its rows can be sealed`() throws {
        try makeClearStore()
        let notSealed = StoreOpenError.notSealed(place: "the store \(path("clear"))/tokens.db")
        #expect(throws: SQLiteOpenError.shared(notSealed)) { try SQLiteTokenStore(at: path("clear")) }
        let examiner = SQLiteStoreProvider(examining: path("clear"))
        #expect(try examiner.examine()?.damage == notSealed)
        #expect(throws: StoreError.self) { try examiner.verify(Fixtures.clearStore) { _ in } }
        let summary = try copy("clear", to: "sealed")
        #expect(summary.copied == CopyCount(tokens: 3, sessions: 1) && summary.isComplete)
        let store = try SQLiteTokenStore(at: path("sealed"))
        defer { store.close() }
        let rows = try OpenedRows(SQLiteConnection(path: store.path, mode: .readOnly), store.state.sealing)
        var tokens: [String: String] = [:]
        var coder = RowCoder(store.state.sealing)
        while let row = try rows.next() {
            switch row {
            case .token(let row, let token):
                let token = try token.get()
                tokens[String(decoding: token.id, as: UTF8.self)] = String(decoding: token.info, as: UTF8.self)
                #expect(row.keyNumber == 1 && row.times.writtenAt / 60 == 1_795_931_682 / 60)
            case .session(_, let opened):
                let opened = try opened.get()
                #expect(opened.session.user == Array("anna".utf8) && opened.session.expiresAt == 2_111_291_682)
                let secret = Base64URL.decode(Array(Fixtures.clearSession.utf8.dropFirst(4)).span) ?? []
                #expect(opened.key == coder.sessionKey(of: secret.span))
            }
        }
        #expect(tokens["9f8a4c1e7b3d60528cd1e5f27a94b306"] == "secret4711 of a device")
        #expect(tokens["long"] == String(repeating: "secret4711 ", count: 300))
        #expect(tokens["anna"]?.contains("secret4711 of anna") == true && tokens.count == 3)
        let file = try Data(contentsOf: URL(filePath: store.path))
        #expect(file.range(of: Data("secret4711".utf8)) == nil)
    }

    @Test func `a row in the clear with an id that no store could seal is left out`() throws {
        try makeClearStore()
        let long = "zeroblob(65536)"
        try sql("clear", "UPDATE token SET key = \(long) WHERE key = x'6c6f6e67'; UPDATE session SET user = \(long)")
        let summary = try copy("clear", to: "sealed", skipsUnreadable: true)
        #expect(summary.copied == CopyCount(tokens: 2) && summary.unreadable == ["\(SealingError.malformed)": 2])
    }

    @Test func `rows of one hash lie beside one another, and indexes are left to the server`() throws {
        let directory = try DataDirectory(path: path("data"), creates: true)
        let options = options("data")
        let target = try SQLiteCopyTarget(in: directory, options: options)
        let rows = (0..<3).map { number in
            CopiedRow.token(
                Token(id: [UInt8(number)], info: [1]), RowTimes(writtenAt: 1, expiresAt: nil), TokenVersion(rawValue: 9)
            )
        }
        try target.add(rows)
        // As if all had the same hash.
        try target.connection.execute("UPDATE arrival SET first_slot = (1 << 20) + 1")
        _ = try target.reread()
        try target.finish(versionLimit: 9, clockLook: nil)
        let connection = try SQLiteConnection(path: path("data") + "/tokens.db", mode: .readWrite)
        #expect(try connection.integer("SELECT min(slot) FROM token") == 1 << 20 | 1)
        #expect(try connection.integer("SELECT max(slot) FROM token") == 1 << 20 | 3)
    }

    @Test func `more rows that do not open than a batch has do not end the copy`() async throws {
        let store = try SQLiteTokenStore(at: path("from"))
        let handle = try await WaitingHandle.open(store)
        for number in 0..<6 { try await handle.put(String(repeating: "x", count: 1 << 20), under: "id\(number)") }
        try await handle.begin("secret", of: "anna")
        store.close()
        try sql("from", "UPDATE token SET value = zeroblob(length(value))")
        let summary = try copy("from", to: "to", skipsUnreadable: true)
        #expect(summary.copied == CopyCount(tokens: 0, sessions: 1) && summary.unreadable.values.reduce(0, +) == 6)
    }

    @Test func `damaged pages lose their own rows only, in a copy and in a list of all tokens`() async throws {
        let store = try SQLiteTokenStore(at: path("from"))
        await SQLiteAdministrator(store).fill(0..<2_000)
        store.close()
        let database = path("from") + "/tokens.db"
        var content = try Data(contentsOf: URL(filePath: database))
        let size = SQLiteConnection.pageSize
        // Leaves of a table (sqlite.org/fileformat2.html, section 1.6), with more rows than any other table has.
        let leaves = (1..<content.count / size).map { $0 * size }.filter { content[$0] == 13 && content[$0 + 4] > 2 }
        let damaged = [leaves[3], leaves[leaves.count - 1]]
        let lost = damaged.reduce(0) { $0 + Int(content[$1 + 4]) }
        for start in damaged { content.replaceSubrange(start..<start + size, with: Data(repeating: 0xff, count: size)) }
        try content.write(to: URL(filePath: database))
        #expect(throws: StoreError.self) { try copy("from", to: "to") }
        let summary = try copy("from", to: "to", skipsUnreadable: true)
        #expect(summary.copied.tokens == 2_000 - lost && Array(summary.unreadable.values) == [lost])
        #expect(summary.wrongCount == nil && !summary.isComplete)
        let opened = try SQLiteTokenStore(at: path("from"))
        defer { opened.close() }
        var (found, faults, cursor) = (0, 0, String?.none)
        repeat {
            let page = try await SQLiteAdministrator(opened).page(after: cursor, limit: 300)
            for entry in page.entries { if case .success = entry.token { found += 1 } else { faults += 1 } }
            cursor = page.next
        } while cursor != nil
        // One if they are neighbours.
        #expect(found == 2_000 - lost && (1...2).contains(faults))
    }

    @Test func `the WAL of a database that was emptied stays`() throws {
        let directory = try DataDirectory.lock(path("from"))
        let (database, wal) = (path("from") + "/tokens.db", path("from") + "/tokens.db-wal")
        try Data().write(to: URL(filePath: database))
        try Data([1, 2, 3]).write(to: URL(filePath: wal))
        #expect(throws: SQLiteOpenError.emptied(path: database)) {
            try SQLiteCopySource(in: directory, options: options("from"))
        }
        #expect(try Data(contentsOf: URL(filePath: wal)) == Data([1, 2, 3]))
    }

    @Test(arguments: [Int.max, -1, 0])
    func `a wrong count is told, and the rows are copied`(_ count: Int) async throws {
        let store = try SQLiteTokenStore(at: path("from"))
        await SQLiteAdministrator(store).fill(0..<100)
        store.close()
        try sql("from", "UPDATE store SET tokens = \(count)")
        let summary = try copy("from", to: "to")
        #expect(summary.copied.tokens == 100 && !summary.isComplete)
    }

    @Test func `a target that holds something else than was read is no store`() async throws {
        let store = try SQLiteTokenStore(at: path("from"))
        await SQLiteAdministrator(store).fill(0..<100)
        store.close()
        let changes = [
            "UPDATE arrival SET version = version + 1 WHERE rowid = 7", "DELETE FROM arrival WHERE rowid = 7",
            "UPDATE arrival SET value = x'00' WHERE rowid = 7",
        ]
        for change in changes {
            #expect(throws: StoreError.self) {
                try copy("from", to: "to", skipsUnreadable: true) { stage, _, target in
                    if stage == .ordering { try? target.connection.execute(change) }
                }
            }
            #expect(!FileManager.default.fileExists(atPath: path("to") + "/tokens.db"))
        }
    }
}
