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
