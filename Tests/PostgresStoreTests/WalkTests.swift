#if PostgreSQL
import Foundation
import StoreConformance
import System
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct WalkTests {
    private var now: Int64 { Int64(Date.now.timeIntervalSince1970) }

    private func round(_ store: TestAdministration) async throws -> WalkReport {
        try await store.administrator.walk { _ in }
    }

    @Test func `expired tokens and sessions and old tombstones are deleted, and nothing else`() async throws {
        let retention = Retention(
            afterWritten: .seconds(3_600), afterExpired: .seconds(60), sessionIdleTimeout: .seconds(3_600))
        let store = try TestAdministration(nil, nil, retention)
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
        let report = try await round(store)
        #expect(report.tokens == 602 && report.sessions == 3 && report.expired == 603 && report.isSound)
        #expect(report.keyNumbers == [1] && report.lastWrittenAt ?? 0 >= began && report.endedAt ?? 0 >= began)
        #expect(try store.database.number("SELECT count(*) FROM token") == 2)
        #expect(try store.database.number("SELECT count(*) FROM session") == 1)
        #expect(try await store.get("new") == "1")
        #expect(try store.row(of: "removed now") != nil)
        #expect(try await store.sessions(of: "anna").map(\.id) == [kept.id])
        #expect(store.state.metrics.expired == 601)
        #expect(store.events.all.contains(.expired(count: 603)))
        #expect(store.state.metrics.walk?.last == report)
        #expect(try await store.administrator.statistics().walk?.last == report)
        // It is kept for the next start, when the clock may be wrong.
        #expect(try store.database.number("SELECT looked_at FROM store") ?? 0 >= began)
    }

    @Test func `of a partitioned table all rows are visited, and only expired ones deleted`() async throws {
        let store = try TestAdministration(nil, nil, Retention(afterWritten: .seconds(3_600)))
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
        let report = try await round(store)
        #expect(report.tokens == 80 && report.expired == 40)
        #expect(try store.database.number("SELECT count(*) FROM token WHERE written_at > \(now - 4_000)") == 40)
    }

    @Test(arguments: [1, 4, 200]) func `every row is read once, however many pages and large values`(
        _ pages: Int64
    ) async throws {
        let store = try TestAdministration()
        let long = String(repeating: "x", count: 1 << 20)
        try await store.put((0..<10).map { ("long\($0)", long) } + (0..<900).map { ("id\($0)", "\($0)") })
        for number in 0..<70 { try await store.begin("s\(number)", of: "user\(number)") }
        let connection = try store.database.connection()
        var (place, names, largest) = (try connection.firstPlace() as RowPlace?, [String](), 0)
        while let start = place {
            #expect(RowPlace("\(start)") == start)
            let (rows, next) = try connection.rows(after: start, pages: pages)
            names += rows.map(\.name)
            let bytes = rows.map { if case .token(let row) = $0 { row.value?.count ?? 0 } else { 0 } }
            largest = max(largest, bytes.reduce(0, +))
            place = next
        }
        #expect(names.count == 980 && Set(names).count == 980)
        #expect(largest <= WalkPace.bytes + (1 << 20) + 1_000)
    }

    @Test func `if the clocks differ, the earlier one counts`() throws {
        let walk = Walk(state: try TestAdministration().state)
        #expect(walk.expiryTime(hasSessions: true, database: 1_000) == 1_000)
        #expect(walk.expiryTime(hasSessions: true, database: now + 86_400) ?? 0 <= now)
    }

    @Test func `after a jump of the clock nothing is deleted, and operators are told`() async throws {
        let store = try TestAdministration(nil, nil, Retention(afterWritten: .seconds(60)))
        try await store.put("1", under: "a", writtenAt: now - 4_000)
        let saved = now - 3 * 86_400
        store.state.clock.use { $0 = ExpiryClock(saved: saved, at: .now) }
        #expect(try await round(store).expired == 0)
        var isHeld = store.state.clock.isHoldingExpiry
        #expect(isHeld)
        #expect(store.events.all.contains { if case .expiryHeld = $0 { true } else { false } })
        store.state.change(Retention())
        _ = try await round(store)
        isHeld = store.state.clock.isHoldingExpiry
        #expect(!isHeld)
        #expect(try await store.get("a") == "1")
    }

    @Test func `what was written by a clock that turned out wrong is dated anew by any server, and not deleted`()
        async throws
    {
        let (ring, retention) = (KeyRing.random(createdAt: 1), Retention(afterWritten: .seconds(30 * 86_400)))
        let store = try TestAdministration(nil, ring, retention)
        let (now, hour) = (ExpiryClock.Reading.now, Int64(3_600))
        func before(_ hours: Int64, wrongBy days: Int64 = 0) -> ExpiryClock.Reading {
            ExpiryClock.Reading(wall: now.wall - hours * hour - days * 24 * hour, running: now.running - hours * hour)
        }
        // The server and its database are on one machine, whose clock was 100 days behind until it was set thirteen hours ago.
        store.state.clock.use { clock in
            clock = ExpiryClock(saved: nil, at: before(14, wrongBy: 100))
            clock.look(at: before(13))
        }
        try await store.put("1", under: "a", writtenAt: before(14, wrongBy: 99).wall)
        _ = try Walk(state: store.state).step(.long, on: try store.database.connection())
        let other = try TestAdministration(store.database, ring, retention)
        for server in [other, store, other] {
            #expect(try await round(server).expired == 0)
            #expect(try store.row(of: "a")?.times.writtenAt == before(13).wall)
        }
        #expect(try await store.get("a") == "1")
        let isHeld = store.state.clock.use(\.holdsExpiry)
        #expect(!isHeld)
    }

    @Test func `a clock that is ahead of the database's dates nothing anew`() throws {
        let walk = Walk(state: try TestAdministration(nil, nil, Retention(afterWritten: .seconds(60))).state)
        let (now, hour) = (ExpiryClock.Reading.now, Int64(3_600))
        for (database, misdated) in [(now.wall - 14 * hour, nil), (now.wall, 0..<(now.wall - 13 * hour))] {
            walk.state.clock.use { clock in
                clock = ExpiryClock(saved: 0, at: .init(wall: now.wall - 13 * hour, running: now.running - 13 * hour))
            }
            var state = WalkState()
            walk.correctTimes(&state, database: database)
            #expect(state.present.misdated == misdated)
        }
    }

    @Test func `a table does not grow much when all of its rows are sealed again`() async throws {
        let server = try TestServer(TestDatabase(alone: TestCluster()))
        try await server.fill(2_000)
        _ = try await server.keys.addKey()
        _ = try await server.keys.useKey(numbered: 2)
        // A transaction beside the walk, even its own upkeep's, would keep PostgreSQL from using the freed space again.
        server.store.close()
        let (walk, connection) = (Walk(state: server.store.state), try server.database.connection())
        let before = try #require(try server.database.number("SELECT pg_relation_size('token')"))
        let round = try walk.begin(on: connection)
        var last: WalkReport?
        for _ in 0..<100 where last?.round != round { last = try walk.step(.long, on: connection).state?.last ?? last }
        #expect(last?.tokens == 2_000 && last?.keyNumbers == [2])
        let after = try #require(try server.database.number("SELECT pg_relation_size('token')"))
        #expect(Double(after) < 1.3 * Double(before))
    }

    /// The values of a step are few or too many for one reading.
    @Test(arguments: [(9_000, 400), (2_000, 6_000)])
    func `a rotation counts each row once, also beside a transaction that keeps the old rows in their pages`(
        count: Int, bytes: Int
    ) async throws {
        let database = try TestDatabase(alone: TestCluster())
        let server = try TestServer(database)
        defer { server.store.close() }
        try await server.fill(count, bytes: bytes)
        _ = try await server.keys.addKey()
        _ = try await server.keys.useKey(numbered: 2)
        // As pg_dump has one.
        let dump = try database.connection()
        try dump.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try dump.run("SELECT FROM token LIMIT 1")
        let report = try await server.store.administrator.walk { _ in }
        #expect(report.tokens == count)
        #expect(report.rekeyed == count && report.keyNumbers == [2])
        try dump.run("ROLLBACK")
    }

    // MARK: - Several servers

    @Test func `one server at a time takes a step, at the pace of one`() async throws {
        let store = try TestAdministration()
        try await store.put("1", under: "a")
        let (one, other) = (try store.database.connection(), try store.database.connection())
        let walk = Walk(state: store.state)
        try one.run("BEGIN")
        try one.run("SELECT FROM store FOR UPDATE")
        for stride in [Walk.Stride.short, .long] { #expect(try walk.step(stride, on: other).state == nil) }
        try one.run("ROLLBACK")
        #expect(try walk.step(on: one).state?.present.tokens == 1)
        let step = try walk.step(on: other)
        #expect(step.state == nil && step.pause > .seconds(1))
        // A time far ahead is that of a host whose clock was wrong.
        try store.database.sql(
            "UPDATE store SET walk = (walk::jsonb || '{\"notBefore\": 99999999999999}')::text")
        #expect(try walk.step(on: other).state?.last?.tokens == 1)
        // The walk of a manipulated store begins anew.
        for number in [Int64.min, .max] {
            try store.database.sql("UPDATE store SET walk = (walk::jsonb || '{\"notBefore\": \(number)}')::text")
            #expect(try walk.step(on: other).state?.present.tokens == 1)
        }
    }

    @Test func `a server that does not know which key seals leaves the steps to others`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let late = try TestServer(database, folder: try first.copyOfRing(), lookingEvery: .seconds(3_600))
        defer { for server in [first, late] { server.store.close() } }
        try await first.put("1", under: "a")
        _ = try await first.keys.addKey()
        _ = try await first.keys.useKey(numbered: 2)
        _ = try await first.store.administrator.walk { _ in }
        let step = try Walk(state: late.store.state).step(.long, on: try database.connection())
        #expect(step.state == nil && step.isStale)
        #expect(try await first.keyNumber(of: "a") == 2)
        // It looks when somebody waits for it.
        try first.copyRing(to: late.folder)
        #expect(try await late.store.administrator.verify { _ in }.isSound)
    }

    @Test func `rows that clients have locked or written are left, and nobody is waited for`() async throws {
        let store = try TestAdministration(nil, nil, Retention(afterWritten: .seconds(3_600)))
        try await store.put((0..<300).map { ("old\($0)", "1") }, writtenAt: now - 4_000)
        let (client, connection) = (try store.database.connection(), try store.database.connection())
        let (rows, _) = try connection.rows(after: connection.firstPlace(), pages: 100)
        try await store.put("2", under: "old7")
        try client.run("BEGIN")
        try client.run("SELECT FROM token WHERE value IS NOT NULL ORDER BY written_at LIMIT 100 FOR UPDATE")
        var step = WalkStep(
            WalkReport(beganAt: now), store.state.sealing, WalkRules(store.state.retention, expiryTime: now))
        for row in rows { try step.visit(row) }
        let expired = try connection.transaction { () throws(PostgresError) in try step.finish(connection, .token) }
        #expect(expired == 199)
        try client.run("ROLLBACK")
        #expect(try await round(store).expired == 100)
        #expect(try await store.get("old7") == "2")
    }

    @Test func `a round ends beside servers that are killed in the middle of steps, and has visited each row`()
        async throws
    {
        let database = try TestDatabase()
        let first = try TestServer(database)
        for number in 0..<20 {
            let tokens = (0..<500).map {
                (token: Token(id: Array("\(number) \($0)".utf8), info: Array("info".utf8)), writtenAt: Int64?.none)
            }
            for outcome in await first.store.administrator.handle.store(tokens, keepsNewer: false) { try outcome.get() }
        }
        let second = try TestServer(database, folder: try first.copyOfRing())
        defer { for server in [first, second] { server.store.close() } }
        _ = try await first.keys.addKey()
        try first.copyRing(to: second.folder)
        _ = try await first.keys.useKey(numbered: 2)
        let walks = try [first, second].map { try #require($0.store.administrator as? PostgresAdministrator) }
        let reports = try await withThrowingTaskGroup { group in
            for walk in walks { group.addTask { try await walk.walk { _ in } } }
            for _ in 0..<5 {
                try database.sql(
                    """
                    SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
                    WHERE datname = current_database() AND query LIKE '%token%' AND pid <> pg_backend_pid()
                    """)
                try await Task.sleep(for: .milliseconds(20))
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(reports.allSatisfy { $0.isSound && $0.endedAt != nil })
        #expect(reports.contains { $0.tokens >= 10_000 })
        #expect(try database.number("SELECT count(*) FROM token WHERE key_number = 2") == 10_000)
        try await first.keys.retireKey(numbered: 1)
    }

    // MARK: - Damage

    @Test func `beside damage in every tenth row a key is replaced, and the damaged rows are counted, named and kept`()
        async throws
    {
        let database = try TestDatabase()
        let server = try TestServer(database)
        let stale = try TestServer(database, folder: try server.copyOfRing(), lookingEvery: .seconds(3_600))
        defer { for server in [server, stale] { server.store.close() } }
        for number in 0..<200 { try await server.put("info", under: "\(number)") }
        let handle = try await WaitingHandle.open(server.store)
        for number in 0..<20 { try await handle.begin("secret \(number)", of: "user \(number)") }
        for (table, value) in [("token", "value"), ("session", "user_value")] {
            try database.sql(
                """
                UPDATE \(table) SET \(value) = set_byte(\(value), 30, 255 - get_byte(\(value), 30)) WHERE key IN
                (SELECT key FROM (SELECT key, row_number() OVER (ORDER BY key) AS n FROM \(table)) AS all_rows WHERE n % 10 = 0)
                """)
        }
        let damaged = "SELECT string_agg(value::text, ' ' ORDER BY key) FROM token WHERE key_number <> 2"
        let values = try database.sql(damaged.replacing(" WHERE key_number <> 2", with: ""))
        _ = try await server.keys.addKey()
        _ = try await server.keys.useKey(numbered: 2)
        let report = try await #require(server.store.administrator as? PostgresAdministrator).walk { _ in }
        let reason = "\(SealingError.tampered(keyNumber: 1))"
        #expect(report.tokens == 200 && report.rekeyed == 180 && report.unreadable == [reason: 22])
        #expect(report.unreadableRows.count == 10 && report.keyNumbers == [2])
        try await server.keys.retireKey(numbered: 1)
        #expect(try await server.keys.keys().map(\.number) == [2])
        #expect(try database.number("SELECT count(*) FROM token") == 200)
        let kept = try #require(try database.sql(damaged)[0][0]).split(separator: " ")
        #expect(kept.count == 20 && kept.allSatisfy { values[0][0]?.contains($0) ?? false })
        // As after each retirement, rows of the key are those of a key that is missing.
        let again = try await server.store.administrator.verify { _ in }
        #expect(again.unreadable == ["\(SealingError.missingKey(number: 1))": 22])
        // A server that still seals with the old key cannot write into such a row, which nobody else could open.
        let lost = try database.sql("SELECT key::text FROM token WHERE key_number < 0 LIMIT 1")
        #expect(lost.count == 1)
        for number in 0..<200 where try await server.keyNumber(of: "\(number)") ?? 0 < 0 {
            await #expect(throws: StoreError.self) { try await stale.put("late", under: "\(number)") }
            try await server.put("again", under: "\(number)")
            #expect(try await server.get("\(number)") == "again")
        }
        #expect(try await server.store.administrator.verify { _ in }.unreadable.values.reduce(0, +) == 2)
    }

    @Test func `a round passes over damaged pages, names them, and a key that rows on them may need is not retired`()
        async throws
    {
        let sound = try TestDatabase(alone: TestCluster())
        let first = try TestServer(sound)
        try await first.fill(600)
        let handle = try await WaitingHandle.open(first.store)
        for number in 0..<100 { try await handle.begin("secret \(number)", of: "user \(number)") }
        first.store.close()
        let damaged = [("token", [0, 3, 4, 20]), ("session", [0, 2])]
        let readable = try damaged.map { table, pages in
            try sound.number(
                "SELECT count(*) FROM \(table) WHERE (ctid::text::point)[0] <> ALL (ARRAY\(pages))")
        }
        let database = try sound.copy(damaging: damaged)
        let server = try TestServer(database, folder: try first.copyOfRing())
        defer { server.store.close() }
        _ = try await server.keys.addKey()
        _ = try await server.keys.useKey(numbered: 2)
        let report = try await server.store.administrator.walk { _ in }
        #expect([report.tokens, report.sessions] == readable.map { Int($0 ?? 0) })
        // PostgreSQL may choose a damaged page for a row that is sealed again; then it stays as it was.
        #expect((1...report.tokens).contains(report.rekeyed) && report.unreadable.isEmpty)
        for (table, pages) in damaged {
            for page in pages {
                let name = "page \(page) of the table \(table) "
                #expect(report.damages.count { $0.contains(name) && $0.contains("invalid page") } == 1)
            }
        }
        // Sessions cannot be read in the order of their keys.
        #expect(report.damages.count { !$0.hasPrefix("rows cannot be sealed again: ") } == 7)
        #expect(try await !server.store.administrator.verify { _ in }.isSound)
        #expect(try await server.store.administrator.statistics().tokensAreEstimated == true)
        // Rows on the damaged pages may be sealed with it.
        let error = await #expect(throws: StoreError.self) { try await server.keys.retireKey(numbered: 1) }
        #expect("\(try #require(error))".hasPrefix("key 1 stays, as rows that cannot be read may be sealed with it: "))
        #expect(try await server.keys.keys().map(\.number) == [1, 2])
    }

    // MARK: - Databases that lack something

    @Test func `a database that was not brought up to date is served, and operators are told once`() async throws {
        let database = try TestDatabase()
        try database.sql("ALTER TABLE store DROP COLUMN walk")
        let events = TestAdministration.Events()
        let store = try PostgresTokenStore(database, report: { events.add($0) })
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        try await eventually { events.all.contains { $0.description.hasSuffix("run token-cache migrate") } }
        try await handle.put("1", under: "a")
        #expect(try await handle.get("a") == "1")
        let statistics = try await store.administrator.statistics()
        #expect(statistics.tokens == 1 && statistics.walk == nil)
        #expect(try !Schema.makeTables(database.connection()))
        #expect(try await store.administrator.verify { _ in }.tokens == 1)
        #expect(events.all.count { $0.description.contains("looked after") } == 1)
    }
}
#endif
