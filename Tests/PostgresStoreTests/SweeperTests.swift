#if PostgreSQL
import Foundation
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite(.serialized) struct SweeperTests {
    private static let quick = Sweeper.Times(
        beat: .milliseconds(20), patience: .milliseconds(200), interval: .milliseconds(50), step: .seconds(10))
    /// However slow the machine is, no beat is late.
    private static let patient = Sweeper.Times(
        beat: .milliseconds(20), patience: .seconds(3_600), interval: .milliseconds(50), step: .seconds(10))

    private var now: Int64 { Int64(Date.now.timeIntervalSince1970) }

    private func sweeper(_ store: TestAdministration, _ number: UInt8 = 1, _ times: Sweeper.Times = Self.quick)
        -> Sweeper
    {
        Sweeper(store.sessions, store.state, holder: [UInt8](repeating: number, count: 16), times: times)
    }

    /// As `migrate` does.
    private func makeIndexes(_ store: TestAdministration, _ retention: Retention) throws {
        try Migrator(store.database.session()).makeIndexes(for: retention)
    }

    @Test func `expired tokens and sessions and old tombstones are deleted, and nothing else`() async throws {
        let retention = Retention(
            sinceWritten: .seconds(3_600), sinceExpired: .seconds(60), sinceSessionUsed: .seconds(3_600))
        let store = try TestAdministration(nil, nil, retention)
        try makeIndexes(store, retention)
        let began = now
        try await store.put((0..<600).map { ("old\($0)", "1") }, writtenAt: now - 4_000)
        try await store.put("1", under: "new")
        let date = "2020-01-01T00:00:00.000+0000"
        try await store.put(
            "{\"com.facebook.sdk:TokenInformationExpirationDateKey\":\"\(date)\"}", under: "expired")
        for id in ["removed long ago", "removed now"] {
            try await store.put("1", under: id)
            _ = try await store.administrator.remove([Array(id.utf8)])
        }
        let tombstone = try #require(try store.row(of: "removed long ago"))
        try store.database.sql("UPDATE token SET written_at = \(now - 4_000) WHERE version = \(tombstone.version)")
        try await store.begin("s1", of: "anna", createdAt: now, expiresAt: now - 1)
        try await store.begin("s2", of: "anna", createdAt: now - 4_000, expiresAt: now + 4_000)
        let kept = try await store.begin("s3", of: "anna", createdAt: now, expiresAt: now + 4_000)
        let sweeper = sweeper(store)
        sweeper.start()
        try await eventually { try store.database.number("SELECT count(*) FROM token") == 2 }
        try await eventually { try store.database.number("SELECT count(*) FROM session") == 1 }
        #expect(try await store.get("new") == "1")
        #expect(try store.row(of: "removed now") != nil)
        #expect(try await store.sessions(of: "anna").map(\.id) == [kept.id])
        try await eventually { store.state.metrics.expired.load(ordering: .relaxed) == 601 }
        sweeper.stop()
        let counts = store.events.all.map { if case .expired(let count) = $0 { count } else { 0 } }
        #expect(counts.reduce(0, +) == 601)
        // For the next start, which may find another clock.
        #expect(try store.database.number("SELECT looked_at FROM store") ?? 0 >= began)
    }

    @Test func `without a retention tokens stay`() async throws {
        let store = try TestAdministration()
        try await store.put("1", under: "a", writtenAt: 1)
        try await store.begin("s1", of: "anna", createdAt: 1, expiresAt: 2)
        let sweeper = sweeper(store)
        sweeper.start()
        try await eventually { try store.database.number("SELECT count(*) FROM session") == 0 }
        #expect(try await store.get("a") == "1")
        store.state.change(Retention(sinceWritten: .seconds(60)))
        sweeper.wake()
        // Without the index every look would read all tokens.
        try await eventually { !store.said.isEmpty }
        let texts = store.said
        #expect(texts.count == 1 && texts[0].contains("no index token_by_writing"), "\(texts)")
        #expect(try store.database.number("SELECT count(*) FROM token") == 1)
        try makeIndexes(store, Retention(sinceWritten: .seconds(60)))
        try await eventually { try store.database.number("SELECT count(*) FROM token") == 0 }
        sweeper.stop()
    }

    @Test func `one server sweeps at a time, another one after it has stopped, and after it has died`() async throws {
        let first = try TestAdministration()
        let others = try (0..<2).map { _ in try TestAdministration(first.database, first.state.sealing.keys) }
        func holder() throws -> Int64? {
            try first.database.number("SELECT coalesce(max(get_byte(holder, 0)), 0) FROM lease WHERE holder <> ''")
        }
        let one = sweeper(first, 1, Self.patient)
        one.start()
        try await eventually { try holder() == 1 }
        let two = sweeper(others[0], 2, Self.patient)
        two.start()
        // It waits as long as the first one beats.
        let beat = try #require(try first.database.number("SELECT beat FROM lease"))
        try await eventually { try first.database.number("SELECT beat FROM lease") ?? 0 > beat + 10 }
        #expect(try holder() == 1)
        one.stop()
        try await eventually { try holder() == 2 }
        two.stop()
        // One that has died without a word.
        try first.database.sql("UPDATE lease SET holder = '\\x09'")
        let three = sweeper(others[1], 3)
        three.start()
        try await eventually { try holder() == 3 }
        three.stop()
        #expect(try holder() == 0)
    }

    @Test func `after a jump of the clock nothing is deleted, and operators are told`() async throws {
        let store = try TestAdministration(nil, nil, Retention(sinceWritten: .seconds(60)))
        try await store.put("1", under: "a", writtenAt: now - 4_000)
        let saved = now - 3 * 86_400
        store.state.clock.use { $0 = ExpiryClock(saved: saved, at: .now) }
        let sweeper = sweeper(store)
        sweeper.start()
        try await eventually { store.state.metrics.isExpiryHeld.load(ordering: .relaxed) }
        #expect(store.events.all.contains { if case .expiryHeld = $0 { true } else { false } })
        store.state.change(Retention())
        sweeper.wake()
        try await eventually { !store.state.metrics.isExpiryHeld.load(ordering: .relaxed) }
        sweeper.stop()
        #expect(try store.database.number("SELECT count(*) FROM token") == 1)
        #expect(try await store.get("a") == "1")
    }

    @Test func `a role that may not delete is told of once, and tokens are hidden all the same`() async throws {
        let store = try TestAdministration(nil, nil, Retention(sinceWritten: .seconds(60)))
        try makeIndexes(store, Retention(sinceWritten: .seconds(60)))
        try await store.put("1", under: "a", writtenAt: now - 4_000)
        let name = "nobody_\(store.database.name)"
        try store.database.sql(
            "CREATE ROLE \(name) LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO \(name)",
            "GRANT INSERT, UPDATE ON lease, store TO \(name)")
        let sessions = PrimarySessions(try ConnectionTarget(url: store.database.url(user: name)) { nil }, .local)
        let sweeper = Sweeper(sessions, store.state, holder: [1], times: Self.quick)
        sweeper.start()
        try await eventually { !store.said.isEmpty }
        let beat = try store.database.number("SELECT beat FROM lease") ?? 0
        try await eventually { try store.database.number("SELECT beat FROM lease") ?? 0 > beat + 3 }
        sweeper.stop()
        let texts = store.said
        #expect(texts.count == 1 && texts.allSatisfy { $0.contains("permission denied for table token") }, "\(texts)")
        #expect(try await store.get("a") == nil)
    }
}

@Suite struct LeaseWatchTests {
    /// What is seen of the lease at some seconds, and whether it may then be taken.
    private func check(_ looks: [(seconds: UInt64, row: LeaseWatch.Row?, mayTake: Bool)]) {
        var watch = LeaseWatch()
        for look in looks {
            let now = MonotonicTime(nanoseconds: look.seconds * 1_000_000_000)
            let mayTake = watch.mayTake(look.row, [1], .seconds(30), at: now)
            #expect(mayTake == look.mayTake, "after \(look.seconds) seconds")
        }
    }

    @Test func `a lease that nobody has, or this server, may be taken`() {
        check([
            (1, nil, true), (2, LeaseWatch.Row(holder: [], beat: 7), true),
            (3, LeaseWatch.Row(holder: [1], beat: 8), true),
        ])
    }

    @Test func `another server's lease may be taken when its beat has stayed the same for long enough`() {
        check([
            (1, LeaseWatch.Row(holder: [2], beat: 1), false), (30, LeaseWatch.Row(holder: [2], beat: 1), false),
            (31, LeaseWatch.Row(holder: [2], beat: 2), false), (60, LeaseWatch.Row(holder: [3], beat: 2), false),
            (89, LeaseWatch.Row(holder: [3], beat: 2), false), (90, LeaseWatch.Row(holder: [3], beat: 2), true),
        ])
    }
}
#endif
