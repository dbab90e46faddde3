#if PostgreSQL
import Foundation
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct SweeperTests {
    private var now: Int64 { Int64(Date.now.timeIntervalSince1970) }

    /// Makes the indexes, as `migrate` does.
    private func makeIndexes(_ store: TestAdministration, _ retention: Retention) throws {
        try Schema.makeIndexes(for: retention, store.database.connection())
    }

    @Test func `expired tokens and sessions and old tombstones are deleted, and nothing else`() async throws {
        let retention = Retention(
            afterWritten: .seconds(3_600), afterExpired: .seconds(60), sessionIdleTimeout: .seconds(3_600))
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
            _ = try await store.administrator.handle.remove([Array(id.utf8)])[0].get()
        }
        let tombstone = try #require(try store.row(of: "removed long ago"))
        try store.database.sql("UPDATE token SET written_at = \(now - 4_000) WHERE version = \(tombstone.version)")
        try await store.begin("s1", of: "anna", createdAt: now, expiresAt: now - 1)
        try await store.begin("s2", of: "anna", createdAt: now - 4_000, expiresAt: now + 4_000)
        let kept = try await store.begin("s3", of: "anna", createdAt: now, expiresAt: now + 4_000)
        var sweeper = Sweeper(store.connections, store.state, interval: .seconds(3_600))
        while sweeper.pause < .seconds(60) { sweeper.proceed() }
        #expect(try store.database.number("SELECT count(*) FROM token") == 2)
        #expect(try store.database.number("SELECT count(*) FROM session") == 1)
        #expect(try await store.get("new") == "1")
        #expect(try store.row(of: "removed now") != nil)
        #expect(try await store.sessions(of: "anna").map(\.id) == [kept.id])
        #expect(store.state.metrics.expired == 601)
        #expect(store.events.all.contains(.expired(count: 601)))
        // It is kept for the next start, when the clock may be wrong.
        #expect(try store.database.number("SELECT looked_at FROM store") ?? 0 >= began)
    }

    @Test func `of a partitioned table only expired rows are deleted`() async throws {
        let store = try TestAdministration()
        try store.database.sql(
            "ALTER TABLE token RENAME TO whole",
            "CREATE TABLE token (LIKE whole INCLUDING ALL) PARTITION BY HASH (key)",
            "CREATE TABLE one PARTITION OF token FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
            "CREATE TABLE other PARTITION OF token FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
        // Rows of two partitions have the same `ctid`.
        for number in 0..<40 {
            try await store.put([("old\(number)", "1")], writtenAt: now - 4_000)
            try await store.put([("new\(number)", "1")], writtenAt: now)
        }
        let rows = ExpiredRows.tokens("written_at", at: now, age: .seconds(3_600), .written)
        #expect(try rows.delete(store.database.connection()) == 40)
        #expect(try store.database.number("SELECT count(*) FROM token WHERE written_at > \(now - 4_000)") == 40)
    }

    @Test func `a server whose clock is ahead deletes nothing that the database's clock keeps`() async throws {
        let store = try TestAdministration()
        for id in ["kept", "removed"] { try await store.put("1", under: id) }
        _ = try await store.administrator.handle.remove([Array("removed".utf8)])[0].get()
        try await store.begin("s1", of: "anna", createdAt: now, expiresAt: now + 4_000)
        let retention = Retention(afterWritten: .seconds(3_600), sessionIdleTimeout: .seconds(3_600))
        let connection = try store.database.connection()
        for rows in ExpiredRows.all(retention, at: now + 86_400) { #expect(try rows.delete(connection) == 0) }
        #expect(try store.database.number("SELECT count(*) FROM token") == 2)
        #expect(try store.database.number("SELECT count(*) FROM session") == 1)
    }

    @Test func `without a retention tokens stay`() async throws {
        let store = try TestAdministration()
        try await store.put("1", under: "a", writtenAt: 1)
        try await store.begin("s1", of: "anna", createdAt: 1, expiresAt: 2)
        var sweeper = Sweeper(store.connections, store.state, interval: .zero)
        while try store.database.number("SELECT count(*) FROM session") != 0 { sweeper.proceed() }
        #expect(try await store.get("a") == "1")
        store.state.change(Retention(afterWritten: .seconds(60)))
        // Nothing is deleted without the index, as each step would read all tokens.
        for _ in 0..<1_000 { sweeper.proceed() }
        let texts = store.said
        #expect(texts.count == 1 && texts[0].contains("no index token_by_writing"), "\(texts)")
        #expect(try store.database.number("SELECT count(*) FROM token") == 1)
        try makeIndexes(store, Retention(afterWritten: .seconds(60)))
        while try store.database.number("SELECT count(*) FROM token") != 0 { sweeper.proceed() }
    }

    @Test func `several servers delete beside one another, and none waits for a row`() async throws {
        let store = try TestAdministration(nil, nil, Retention(afterWritten: .seconds(3_600)))
        try makeIndexes(store, Retention(afterWritten: .seconds(3_600)))
        try await store.put((0..<300).map { ("old\($0)", "1") }, writtenAt: now - 4_000)
        let rows = ExpiredRows.tokens("written_at", at: now, age: .seconds(3_600), .written)
        let (one, other) = (try store.database.connection(), try store.database.connection())
        try one.run("BEGIN")
        #expect(try rows.delete(one) == ExpiredRows.batch)
        #expect(try rows.delete(other) == 300 - ExpiredRows.batch)
        try one.run("ROLLBACK")
        try one.run("BEGIN")
        try one.run("SELECT FROM token LIMIT 100 FOR UPDATE")
        #expect(try rows.delete(other) == ExpiredRows.batch - 100)
        try one.run("ROLLBACK")
        #expect(try rows.delete(other) == 100)
    }

    @Test func `after a jump of the clock nothing is deleted, and operators are told`() async throws {
        let store = try TestAdministration(nil, nil, Retention(afterWritten: .seconds(60)))
        try await store.put("1", under: "a", writtenAt: now - 4_000)
        let saved = now - 3 * 86_400
        store.state.clock.use { $0 = ExpiryClock(saved: saved, at: .now) }
        var sweeper = Sweeper(store.connections, store.state, interval: .zero)
        sweeper.proceed()
        var isHeld = store.state.clock.isHoldingExpiry
        #expect(isHeld)
        #expect(store.events.all.contains { if case .expiryHeld = $0 { true } else { false } })
        store.state.change(Retention())
        sweeper.proceed()
        isHeld = store.state.clock.isHoldingExpiry
        #expect(!isHeld)
        #expect(try store.database.number("SELECT count(*) FROM token") == 1)
        #expect(try await store.get("a") == "1")
    }

    @Test func `a role that may not delete is told of once, and tokens are hidden all the same`() async throws {
        let store = try TestAdministration(nil, nil, Retention(afterWritten: .seconds(60)))
        try makeIndexes(store, Retention(afterWritten: .seconds(60)))
        try await store.put("1", under: "a", writtenAt: now - 4_000)
        let name = "nobody_\(store.database.name)"
        try store.database.sql(
            "CREATE ROLE \(name) LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO \(name)",
            "GRANT UPDATE ON store TO \(name)")
        let connections = PrimaryConnections(store.database.options(user: name))
        var sweeper = Sweeper(connections, store.state, interval: .zero)
        for _ in 0..<1_000 { sweeper.proceed() }
        let texts = store.said
        #expect(texts.count == 1 && texts.allSatisfy { $0.contains("permission denied for table token") }, "\(texts)")
        #expect(try await store.get("a") == nil)
    }
}
#endif
