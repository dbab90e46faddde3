import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct RecoveryTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }
    private let events = Events()

    @Test("another program's lock makes writes fail until it is gone, while reads continue")
    func locked() async throws {
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        let intruder = try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
        // The store may just be checkpointing.
        try await eventually { (try? intruder.execute("BEGIN IMMEDIATE")) != nil }
        await #expect(throws: StoreError.self) { try await handle.put("2", under: "a") }
        await #expect(throws: StoreError.self) { try await handle.put("2", under: "a") }
        #expect(try await handle.get("a") == "1")
        try intruder.execute("ROLLBACK")
        try await handle.put("3", under: "a")
        #expect(try await handle.get("a") == "3")
        // Reported when nothing has failed for a second.
        try await eventually { events.all.contains(.writesRecovered(failed: 2)) }
        #expect(events.all.filter { if case .writesFail = $0 { true } else { false } }.count == 1)
    }

    @Test("a long read does not prolong a passing fault")
    func longReading() throws {
        let store = try WriterHarness(data)
        try store.store("me", bytes: 1)
        let reader = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        try reader.execute("BEGIN")
        #expect(try reader.integer("SELECT count(*) FROM token") == 1)
        store.failChange()
        #expect(store.state.fault != nil)
        // The database is opened again for it.
        try store.store("other", bytes: 1)
        #expect(try reader.integer("SELECT count(*) FROM token") == 1)
        try reader.execute("COMMIT")
        #expect(try reader.integer("SELECT count(*) FROM token") == 2)
    }

    /// Fills pages with garbage while no store is open.
    ///
    /// - Parameter find: Gets the file, and where a page begins.
    /// - Returns: How many cells they had.
    private func damagePages(_ find: (Data, Int) -> Bool) throws -> Int {
        let url = URL(filePath: data + "/tokens.db")
        var (content, size, cells) = (try Data(contentsOf: url), SQLiteConnection.pageSize, 0)
        for start in stride(from: size, to: content.count, by: size) where find(content, start) {
            cells += Int(content[start + 4])
            content.replaceSubrange(start..<start + size, with: Data(repeating: 0xff, count: size))
        }
        try content.write(to: url)
        return cells
    }

    @Test func `a damaged page fails the tokens on it and no others, and the store stays ready`() async throws {
        let ids = (0..<500).map { "id\($0)" }
        do {
            let store = try WriterHarness(data)
            for id in ids { try store.store(id, bytes: 300) }
            store.database.close()
        }
        var isFirst = true
        // A leaf of a table (sqlite.org/fileformat2.html, section 1.6), with more rows than any other table has.
        let rows = try damagePages { content, start in
            guard isFirst, content[start] == 13, content[start + 4] > 2 else { return false }
            isFirst = false
            return true
        }
        do {
            let store = try WriterHarness(data)
            var coder = RowCoder(store.state.sealing)
            let info = [UInt8](repeating: 66, count: 300)
            let changes = try ids.map { Change.store(try coder.row(of: Token(id: Array($0.utf8), info: info))) }
            let outcomes = store.write(changes)
            let failed = outcomes.indices.filter { (try? outcomes[$0].get()) == nil }
            #expect(rows > 2 && (rows...rows + 2).contains(failed.count))
            // The same few again and again are still no fault of the database.
            for _ in 0..<20 { _ = store.write(failed.map { changes[$0] }) }
            #expect(store.state.fault == nil && store.events.all.isEmpty)
            store.database.close()
        }
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        var unreadable = 0
        for id in ids {
            do {
                #expect(try await handle.get(id) == String(repeating: "B", count: 300))
            } catch {
                unreadable += 1
                await #expect(throws: StoreError.self) { try await handle.put("x", under: id) }
            }
        }
        #expect((rows...rows + 2).contains(unreadable) && store.fault == nil)
        #expect(store.metrics.unreadableReads == unreadable)
    }

    @Test(arguments: [false, true]) func `a table that is damaged as a whole is a fault`(isRead: Bool) async throws {
        do {
            let store = try WriterHarness(data)
            for number in 0..<100 { try store.store("id\(number)", bytes: 300) }
            store.database.close()
        }
        // Inner pages and leaves of the table of tokens.
        _ = try damagePages { content, start in [5, 13].contains(content[start]) && content[start + 4] > 2 }
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        for number in 0..<100 where store.fault == nil {
            await #expect(throws: StoreError.self) {
                let id = "id\(number)"
                if isRead { _ = try await handle.get(id) } else { try await handle.put("x", under: id) }
            }
        }
        #expect(store.fault != nil)
    }

    @Test(
        "a database that is opened again after a fault keeps its keys, although their file is lost",
        arguments: [false, true])
    func lostKeyRing(hasRows: Bool) throws {
        let store = try WriterHarness(data)
        if hasRows { try store.store("me", bytes: 1) }
        try FileManager.default.removeItem(atPath: data + "/keys")
        store.failChange()
        try store.store("other", bytes: 1)
        // No other ring has taken its place.
        #expect(!FileManager.default.fileExists(atPath: data + "/keys"))
    }
}

@Suite struct RetentionTests {
    @Test("extreme numbers in a row do not overflow")
    func extremes() {
        let retention = Retention(afterWritten: .seconds(10), afterExpired: .seconds(20))
        #expect(retention.deadline(writtenAt: 100, expiresAt: nil) == 111)
        #expect(retention.deadline(writtenAt: 100, expiresAt: 80) == 101)
        #expect(retention.deadline(writtenAt: .max, expiresAt: .max) == .max)
        #expect(retention.deadline(writtenAt: .min, expiresAt: .min) == .min + 11)
        #expect(Retention().deadline(writtenAt: 0, expiresAt: 0) == .max)
    }
}
