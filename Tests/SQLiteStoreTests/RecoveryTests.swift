import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct RecoveryTests {
    private let folder: TemporaryDirectory
    private let data: String
    private let events = Events()

    init() throws {
        folder = try TemporaryDirectory()
        data = folder.path + "/data"
    }

    /// Waits until something is so.
    private func until(_ isSo: () async throws -> Bool) async throws {
        for _ in 0..<500 {
            if try await isSo() { return }
            try await Task.sleep(for: .milliseconds(20))
        }
        Issue.record("it did not come true in 10 seconds")
    }

    @Test("a lock of another program's fails writes, reads go on, and writes do when it is gone")
    func locked() async throws {
        let store = try SQLiteTokenStore(at: data, events: events)
        defer { store.close() }
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("1", under: "a")
        let intruder = try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
        try intruder.execute("BEGIN IMMEDIATE")
        await #expect(throws: StoreError.self) { try await handle.put("2", under: "a") }
        await #expect(throws: StoreError.self) { try await handle.put("2", under: "a") }
        #expect(try await handle.get("a") == "1")
        try intruder.execute("ROLLBACK")
        try await handle.put("3", under: "a")
        #expect(try await handle.get("a") == "3")
        // Told when nothing has failed for a second.
        try await until { events.all.contains(.writesRecovered(failed: 2)) }
        #expect(events.all.filter { if case .writesFail = $0 { true } else { false } }.count == 1)
    }

    @Test("somebody who reads for long does not make a passing fault last")
    func longReading() throws {
        let store = try WriterHarness(data)
        try store.store("me", bytes: 1)
        let reader = try SQLiteConnection(path: data + "/tokens.db", mode: .readOnly)
        try reader.execute("BEGIN")
        #expect(try reader.integer("SELECT count(*) FROM token") == 1)
        #expect(throws: StoreError.self) {
            try store.database.perform { (_) throws(SQLiteError) in
                throw SQLiteError(code: 10, message: "disk I/O error", sql: "test")
            }
        }
        #expect(store.state.fault != nil)
        // The database is opened again for it.
        try store.store("other", bytes: 1)
        #expect(try reader.integer("SELECT count(*) FROM token") == 1)
        try reader.execute("COMMIT")
        #expect(try reader.integer("SELECT count(*) FROM token") == 2)
    }

    @Test("tokens are dropped when they were not written for the time, or when they have expired by their own account")
    func retention() async throws {
        let written = try SQLiteTokenStore(at: data)
        let administrator = SQLiteAdministrator(written)
        let now = Int64(Date.now.timeIntervalSince1970)
        let expired = #"{"com.facebook.sdk:TokenInformationExpirationDateKey":"2013-08-14T19:24:05.123 0000"}"#
        let lasting = #"{"com.facebook.sdk:TokenInformationExpirationDateKey":"4001-01-01T00:00:00.000 0000"}"#
        var tokens: [(token: Token, writtenAt: Int64?)] = (0..<1_000).map { number in
            (Token(id: Array("old\(number)".utf8), info: [1]), now - 5_000)
        }
        tokens.append((Token(id: Array("new".utf8), info: Array(lasting.utf8)), nil))
        tokens.append((Token(id: Array("expired".utf8), info: Array(expired.utf8)), nil))
        _ = await administrator.store(tokens)
        written.close()
        // The times of the two policies apply apart from one another, and nothing is dropped without one.
        let kept = try SQLiteTokenStore(at: data)
        #expect(try await SQLiteAdministrator(kept).statistics().tokens == 1_002)
        kept.close()
        let byWriting = try SQLiteTokenStore(at: data) { $0.retention = Retention(sinceWritten: .seconds(3_600)) }
        let handle = try await ConformanceHandle.open(byWriting)
        #expect(try await handle.get("old999") == nil)
        #expect(try await handle.get("expired") == expired)
        try await until { try await SQLiteAdministrator(byWriting).statistics().tokens == 2 }
        byWriting.close()
        #expect(byWriting.metrics.expired == 1_000)
        let byExpiration = try SQLiteTokenStore(at: data) { $0.retention = Retention(sinceExpired: .seconds(60)) }
        defer { byExpiration.close() }
        try await until { try await SQLiteAdministrator(byExpiration).statistics().tokens == 1 }
        #expect(try await ConformanceHandle.open(byExpiration).get("new") == lasting)
        #expect(try await SQLiteAdministrator(byExpiration).verify { _ in }.isSound)
    }

    @Test("a change of retention that finds no room leaves the indexes as they were")
    func retentionWithoutRoom() async throws {
        let store = try SQLiteTokenStore(at: data) { $0.retention = Retention(sinceExpired: .seconds(1_000)) }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        _ = await administrator.store((0..<2_000).map { (Token(id: Array("id\($0)".utf8), info: [65]), nil) })
        // As many pages as there are.
        try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try writer.connection.execute("PRAGMA max_page_count = 1")
        }
        await #expect(throws: StoreError.self) { try await store.change(Retention(sinceWritten: .seconds(1_000))) }
        let names = try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try writer.connection.text(
                "SELECT group_concat(name) FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'token'")
        }
        #expect(names == "token_by_expiration")
    }
}

@Suite struct RetentionTests {
    @Test("no number of a row is too large or too small for the reckoning")
    func extremes() {
        let retention = Retention(sinceWritten: .seconds(10), sinceExpired: .seconds(20))
        #expect(retention.deadline(writtenAt: 100, expiresAt: nil) == 111)
        #expect(retention.deadline(writtenAt: 100, expiresAt: 80) == 101)
        #expect(retention.deadline(writtenAt: .max, expiresAt: .max) == .max)
        #expect(retention.deadline(writtenAt: .min, expiresAt: .min) == .min + 11)
        #expect(Retention().deadline(writtenAt: 0, expiresAt: 0) == .max)
    }
}
