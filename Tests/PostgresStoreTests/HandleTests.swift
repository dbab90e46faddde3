#if PostgreSQL
import StoreConformance
import Synchronization
import System
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// A number that several tasks see.
private final class Shared: Sendable {
    private let number: Atomic<Int>

    init(_ value: Int) { number = Atomic(value) }

    var value: Int { number.load(ordering: .sequentiallyConsistent) }

    func set(_ value: Int) { number.store(value, ordering: .sequentiallyConsistent) }
}

/// What a handle does when the database, its connections or the clocks of other servers do not behave.
@Suite struct HandleTests {
    @Test func `a server whose clock is behind writes later versions than it finds, and keeps the latest session`()
        async throws
    {
        let database = try TestDatabase()
        let (ahead, behind) = (VersionClock(process: 1), VersionClock(process: 2) { 1_000 })
        let first = try PostgresTokenStore(database, versions: ahead)
        let second = try PostgresTokenStore(database, versions: behind)
        let (one, other) = (try await WaitingHandle.open(first), try await WaitingHandle.open(second))
        try await one.put("1", under: "a")
        // This server has not read the row, so its first version is too early and changes nothing.
        try await other.put("2", under: "a")
        #expect(try await one.get("a") == "2")
        try await one.put("3", under: "a")
        #expect(try await other.remove("a"))
        #expect(try await one.get("a") == nil)
        try await one.begin("first", of: "anna", perUser: 1)
        #expect(try await other.begin("second", of: "anna", perUser: 1).ended == 1)
        #expect(try await other.find("second") != nil)
        try await one.begin("third", of: "anna", perUser: 1)
        #expect(try await one.find("third") != nil)
        #expect(try await one.find("second") == nil)
        first.close()
        second.close()
    }

    @Test func `a delayed write of an earlier version brings no removed token back`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        #expect(try await handle.remove("a"))
        // A statement that a lost connection has sent, and that arrives only now.
        try database.sql(
            """
            INSERT INTO token (key, version, written_at, key_number, value)
            SELECT key, version - 1, 0, key_number, 'late' FROM token
            ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version
            WHERE token.version <= excluded.version
            """)
        #expect(try await handle.get("a") == nil)
        #expect(try await handle.remove("a") == false)
        // A removed token counts as missing, also for a condition.
        try await handle.put("2", under: "a", if: .missing)
        #expect(try await handle.get("a") == "2")
        store.close()
    }

    @Test func `a token with the largest version, which no server gives, can be replaced and removed`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        try database.sql("UPDATE token SET version = \(Int64.max)")
        try await handle.put("2", under: "a")
        try await handle.put("3", under: "a", if: .exists)
        #expect(try await handle.get("a") == "3")
        #expect(try await handle.remove("a"))
        #expect(try await handle.get("a") == nil)
    }

    @Test func `closing the store waits for the writes that were handed over`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        let connection = try database.connection()
        try connection.run("BEGIN")
        try connection.run("UPDATE token SET written_at = 1")
        let (isClosed, order) = (Shared(0), Shared(0))
        async let stored = handle.put("2", under: "a")
        while store.state.waitingRequests.load(ordering: .acquiring) == 0 { await Task.yield() }
        try NamedThread.start("closing") {
            store.close()
            isClosed.set(order.value)
        }
        while !store.state.isClosed.load(ordering: .acquiring) { await Task.yield() }
        // Long enough for a store that does not wait to close.
        try connection.run("SELECT pg_sleep(0.5)")
        order.set(1)
        try connection.run("ROLLBACK")
        _ = try await stored
        while isClosed.value == 0 { await Task.yield() }
        #expect(isClosed.value == 1)
    }

    @Test func `the end of a session locks nothing while writes of its turn wait`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        let made = try await handle.begin("secret", of: "anna")
        let other = try database.connection()
        try other.run("BEGIN")
        try other.run("UPDATE token SET written_at = 1")
        let begun = try await handle.begin([("a", "2")]).writes
        async let ending = handle.endSession(id: made.id)
        try await eventually { try database.waiting() == 1 }
        // A write that depends on the session locks it like this; if that had to wait, each would wait for the other.
        #expect(throws: Never.self) { try other.run("SELECT 1 FROM session FOR KEY SHARE NOWAIT") }
        try other.run("ROLLBACK")
        #expect(try await ending?.id == made.id)
        try await eventually { begun.ended == [0] }
        #expect(try await handle.get("a") == "2")
        store.close()
    }

    @Test func `a request beyond the limit is refused at once`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database, changePostgres: { $0.requestLimit = 2 })
        let handle = try await WaitingHandle.open(store)
        let (begun, endedAtOnce) = try await handle.begin([("a", "1"), ("b", "2"), ("c", "3")])
        #expect(endedAtOnce == [2])
        try await handle.flush()
        while begun.ended.count < 3 { try await Task.sleep(for: .milliseconds(5)) }
        #expect(try await handle.get("c") == nil)
        #expect(try await handle.get("b") == "2")
        let refusals = try await handle.fetchAll(["a", "a", "a"]).map { outcome in
            if case .failure(.overloaded(.requests)) = outcome { true } else { false }
        }
        #expect(refusals == [false, false, true])
        #expect(store.state.waitingRequests.load(ordering: .relaxed) == 0)
        #expect(store.state.waitingBytes.load(ordering: .relaxed) == 0)
        store.close()
    }

    @Test func `a request whose time is over is not sent any more`() throws {
        let lone = try LoneHandle(try TestDatabase().options(), timeout: .zero)
        lone.handle.take(try lone.connection(), 0)
        var outcome: Result<TokenVersion, StoreError>?
        lone.handle.store([65], under: [66], if: WriteCondition(), completion: Completion { outcome = $0 })
        lone.handle.flush()
        #expect(outcome == .failure(.overloaded(.unanswered(limit: .zero))))
        #expect(lone.handle.slots[0].pipeline?.groups.isEmpty == true)
    }

    @Test func `a use of a session is noted at the end of the transaction of its turn`() throws {
        let lone = try LoneHandle(TestDatabase().options())
        let key = try lone.handle.sessionKey(of: Array("secret".utf8).span)
        for number in 0..<3 {
            lone.handle.noteUse(of: key, at: 5_000)
            lone.handle.store([1], under: [UInt8(number)], if: WriteCondition(), completion: Completion { _ in })
        }
        var left = lone.handle.slots[0].queue[...]
        let group = Grouping.next(from: &left)
        #expect(left.isEmpty && group.map { $0 is WriteOperation } == [true, true, true, false, false, false])
    }

    @Test func `a use of a session is noted unless somebody has locked it, and nobody waits for that`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        try await handle.begin("secret", of: "anna")
        let other = try database.connection()
        for statement in ["BEGIN", "SELECT 1 FROM session FOR UPDATE"] { try other.run(statement) }
        try await handle.use("secret", at: 1 << 33)
        try await handle.put("1", under: "a")
        try other.run("ROLLBACK")
        #expect(try database.number("SELECT used_at FROM session") ?? 1 << 33 < 1 << 33)
        try await handle.use("secret", at: 1 << 33)
        try await handle.put("2", under: "a")
        try await eventually { try database.number("SELECT used_at FROM session") == 1 << 33 }
    }
}
#endif
