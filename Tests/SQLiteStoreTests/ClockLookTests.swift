import Foundation
import Metrics
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct ClockLookTests {
    @Test("a start long after the last look drops nothing and says so; a clock that is right has tokens dropped")
    func store() async throws {
        let folder = TemporaryDirectory()
        let events = Events()
        let open = {
            try SQLiteTokenStore(at: folder.path, events: events) {
                $0.retention = Retention(afterWritten: .seconds(60))
            }
        }
        let now = Int64(Date.now.timeIntervalSince1970)
        // Created just now, which is a look at the clock.
        let first = try SQLiteTokenStore(at: folder.path)
        _ = await SQLiteAdministrator(first).store([(Token(id: [65], info: [66]), now - 5_000)])
        first.close()
        try await lookedAt(now - 3 * 86_400, in: folder)
        let second = try open()
        try await eventually { second.metrics.isExpiryHeld }
        #expect(events.all.contains { if case .expiryHeld = $0 { true } else { false } })
        #expect(try await SQLiteAdministrator(second).statistics().tokens == 1)
        #expect(try await WaitingHandle.open(second).get("A") == "B", "nor does it hide anything")
        // Without retention nothing is held.
        second.change(Retention())
        try await eventually { !second.metrics.isExpiryHeld }
        second.close()
        try await lookedAt(now, in: folder)
        let third = try open()
        defer { third.close() }
        try await eventually { try await SQLiteAdministrator(third).statistics().tokens == 0 }
        #expect(!third.metrics.isExpiryHeld)
    }

    @Test(
        "what was written by a clock that turned out wrong is dated by the moment when the clock became right",
        arguments: [true, false])
    func misdated(isExpiring: Bool) async throws {
        let folder = TemporaryDirectory()
        let store = try SQLiteTokenStore(at: folder.path)
        defer { store.close() }
        let (now, hour) = (ExpiryClock.Reading.now, Int64(3_600))
        func before(_ hours: Int64, wrongBy days: Int64 = 0) -> ExpiryClock.Reading {
            ExpiryClock.Reading(wall: now.wall - hours * hour - days * 24 * hour, running: now.running - hours * hour)
        }
        func jump(_ hours: Int64) {
            store.state.clock.use { clock in
                clock = ExpiryClock(saved: nil, at: before(14, wrongBy: 100))
                clock.look(at: before(hours))
            }
        }
        jump(11)
        let written = before(14, wrongBy: 99).wall
        _ = await SQLiteAdministrator(store).store([(Token(id: [65], info: [66]), written)])
        if isExpiring {
            store.change(Retention(afterWritten: .seconds(86_400)))
            try await eventually { store.metrics.isExpiryHeld }
        }
        jump(13)
        if !isExpiring { _ = try await SQLiteAdministrator(store).walk { _ in } }
        // Expired tokens are looked for at once.
        store.change(Retention(afterWritten: .seconds(86_401)))
        try await eventually { !store.state.clock.use(\.holdsExpiry) }
        #expect(try await WaitingHandle.open(store).get("A") == "B")
        let reader = try SQLiteConnection(path: folder.path + "/tokens.db", mode: .readOnly)
        #expect(try reader.integer("SELECT written_at FROM token") == Int(before(13).wall))
    }

    /// Changes the time of the last look in a store that nobody has open.
    private func lookedAt(_ time: Int64, in folder: TemporaryDirectory) async throws {
        let connection = try SQLiteConnection(path: folder.path + "/tokens.db", mode: .readWrite)
        try connection.execute("UPDATE store SET looked_at = \(time)")
    }

    @Test("the last look is known to a store whose WAL cannot be moved at the start")
    func lookBesideFault() throws {
        let data = TemporaryDirectory()
        let path = data.path + "/tokens.db"
        var reader: SQLiteConnection?
        do {
            let store = try WriterHarness(data.path)
            try store.store("one", bytes: 100)
            try store.perform { try $0.saveClockLook(1_000) }
            // Whoever still reads an earlier state keeps the WAL from being moved.
            reader = try SQLiteConnection(path: path, mode: .readOnly)
            try reader?.execute("BEGIN")
            #expect(try reader?.integer("SELECT count(*) FROM token") == 1)
            try store.store("two", bytes: 100)
        }
        let store = try WriterHarness(data.path)
        #expect(store.state.fault != nil)
        #expect(store.database.lastClockLook == 1_000)
        reader = nil
    }
}
