import Cryptography
import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct RowSlotTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }

    // MARK: - Numbers

    @Test("slots are positive and in the order of the hashes, and those of two hashes are the same or apart")
    func numbers() {
        #expect(RowSlots.first(of: 0) == 1)
        // Six bytes in SQLite's numbers of variable length (sqlite.org/fileformat2.html, section 1.6).
        #expect(RowSlots.first(of: .max) + (RowSlots.count - 1) == 1 << 42 - 1)
        #expect(RowSlots.first(of: 0x0000_0000_03ff_ffff) == 1)
        #expect(RowSlots.first(of: 0x0000_0000_0400_0000) == 17)
        var generator = SeededGenerator(seed: 1)
        let prefixes = (0..<1_000).map { _ in UInt64.random(in: 0...(.max), using: &generator) }
        let slots = prefixes.sorted().map(RowSlots.first)
        for (slot, next) in zip(slots, slots.dropFirst()) { #expect(slot + RowSlots.count < next) }
        #expect(RowSlots.contains(17, from: 17) && RowSlots.contains(31, from: 17))
        #expect(!RowSlots.contains(16, from: 17) && !RowSlots.contains(32, from: 17))
    }

    // MARK: - Rows with the same slots

    /// A new table, in a file of its own.
    private func writer() throws -> WriterConnection {
        let connection = try SQLiteConnection(path: folder.path + "/db", mode: .readWriteCreate)
        try Schema.create(connection)
        return try WriterConnection(
            connection, options: StoreOptions(in: folder.path), Sealing(.random(createdAt: 1)))
    }

    /// A key whose row lies in the slots that begin with one.
    private static func key(_ end: UInt8, from slot: UInt64) -> RowKey {
        let prefix = (slot >> 4) << 26
        return RowKey(bytes: (0..<8).map { UInt8(truncatingIfNeeded: prefix >> (56 - 8 * $0)) } + [end])
    }

    /// What the table holds, by key.
    private func rows(_ connection: SQLiteConnection) throws -> [[UInt8]: UInt8] {
        let select = try SQLiteStatement("SELECT key, value FROM token", on: connection)
        var rows: [[UInt8]: UInt8] = [:]
        while try select.step() {
            #expect(rows.updateValue(select.blob(at: 1)[0], forKey: select.blob(at: 0)) == nil)
        }
        return rows
    }

    @Test("rows with the same slots are written, replaced and removed as if they had none in common", arguments: 0..<5)
    func crowds(_ seed: UInt64) throws {
        let writer = try writer()
        var generator = SeededGenerator(seed: seed)
        let keys = (0..<UInt8(24)).map { Self.key($0, from: $0 % 2 == 0 ? 1 : 17) }
        var expected: [[UInt8]: UInt8] = [:]
        for _ in 0..<400 {
            guard let key = keys.randomElement(using: &generator) else { return }
            if Bool.random(using: &generator) {
                let value = UInt8.random(in: 0...255, using: &generator)
                let outcome = try writer.commit([Row(key, [value])])[0]
                #expect((try? outcome.get()) != nil)
                expected[key.bytes] = value
            } else {
                let removed = try writer.remove([key])
                #expect(removed == [expected.removeValue(forKey: key.bytes) != nil])
            }
            #expect(try rows(writer.connection) == expected)
            #expect(writer.tokenCount == expected.count)
        }
    }

    @Test("a row for which no slot is free fails, and the others of its group do not")
    func fullCrowd() throws {
        let writer = try writer()
        let keys = (0..<UInt8(16)).map { Self.key($0, from: 33) }
        let other = Self.key(99, from: 49)
        let outcomes = try writer.commit((keys + [other]).map { Row($0, [1]) })
        #expect(outcomes.map { (try? $0.get()) != nil } == [Bool](repeating: true, count: 15) + [false, true])
        #expect(writer.tokenCount == 16)
        #expect(try writer.remove([keys[3]]) == [true])
        #expect((try? writer.commit([Row(keys[15], [2])])[0].get()) != nil)
    }

    // MARK: - A store in which slots are taken

    /// Moves all rows by some slots, and puts an unrelated row in the place of each.
    private func displace(by count: Int) throws {
        let connection = try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
        try connection.execute(
            """
            UPDATE token SET slot = slot + \(count);
            INSERT INTO token (slot, key, written_at, key_number, version, value)
            SELECT slot - \(count), randomblob(32), 1, 0, 0, x'00' FROM token;
            UPDATE store SET tokens = (SELECT count(*) FROM token)
            """
        )
    }

    @Test("a token whose first slot is another one's is found, replaced and removed")
    func displaced() async throws {
        var store = try SQLiteTokenStore(at: data)
        let first = try await WaitingHandle.open(store)
        for number in 0..<20 { try await first.put("info\(number)", under: "id\(number)") }
        store.close()
        try displace(by: 3)
        store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        for number in 0..<20 { #expect(try await handle.get("id\(number)") == "info\(number)") }
        try await handle.put("new", under: "id3")
        #expect(try await handle.get("id3") == "new")
        let administrator = SQLiteAdministrator(store)
        #expect(try await administrator.statistics().tokens == 40)
        #expect(await administrator.handle.remove([Array("id4".utf8)]) == [.success(true)])
        #expect(try await handle.get("id4") == nil)
        try await handle.put("again", under: "id4")
        #expect(try await handle.get("id4") == "again")
        #expect(try await administrator.statistics().tokens == 40)
        #expect(try await handle.get("id5") == "info5")
    }

    @Test(
        "a row in slots where it does not belong is not found, and a verification reports it",
        arguments: [
            (
                """
                INSERT INTO token SELECT -1, key, written_at, expires_at, key_number, version, value FROM token LIMIT 1;
                UPDATE store SET tokens = 2
                """, 2
            ),
            ("UPDATE token SET slot = slot + 15", 1),
        ])
    func misplaced(_ change: (sql: String, tokens: Int)) async throws {
        var store = try SQLiteTokenStore(at: data)
        try await WaitingHandle.open(store).put("info", under: "id")
        store.close()
        try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite).execute(change.sql)
        store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        #expect(try await WaitingHandle.open(store).get("id") == (change.tokens == 1 ? nil : "info"))
        let found = try await SQLiteAdministrator(store).verify { _ in }
        #expect(found.damages.isEmpty && found.unreadable == ["\(SealingError.misplaced)": 1])
        #expect(found.tokens == change.tokens && !found.isSound)
    }
}
