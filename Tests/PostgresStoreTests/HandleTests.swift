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
    @Test func `a server whose clock is behind writes versions later than those that it finds`() async throws {
        let database = try TestDatabase()
        let (ahead, behind) = (VersionClock(process: 1), VersionClock(process: 2) { 1_000 })
        let first = try PostgresTokenStore(database, versions: ahead)
        let second = try PostgresTokenStore(database, versions: behind)
        let (one, other) = (try await ConformanceHandle.open(first), try await ConformanceHandle.open(second))
        try await one.put("1", under: "a")
        // It has not read the row before, so its first version is too early, and nothing is changed by it.
        try await other.put("2", under: "a")
        #expect(try await one.get("a") == "2")
        try await one.put("3", under: "a")
        #expect(try await other.remove("a"))
        #expect(try await one.get("a") == nil)
        first.close()
        second.close()
    }

    @Test func `a delayed write of an earlier version brings no removed token back`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("1", under: "a")
        #expect(try await handle.remove("a"))
        // As a connection that was lost before its statement arrived would have it carried out now.
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

    @Test func `acknowledged writes survive connections that are ended at random`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await ConformanceHandle.open(store)
        let isOver = Shared(0)
        let values = try await withThrowingTaskGroup(of: [Int: Int].self) { group in
            group.addTask {
                while isOver.value == 0 {
                    try database.sql(
                        """
                        SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity
                        WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5
                        """)
                    try await Task.sleep(for: .milliseconds(30))
                }
                return [:]
            }
            for client in 0..<16 {
                group.addTask {
                    var acknowledged = 0
                    for number in 1...60 {
                        // A write may fail, as nobody can tell whether its commit was lost with the connection.
                        if (try? await handle.put("\(number)", under: "id \(client)")) != nil { acknowledged = number }
                        guard let read = try? await handle.get("id \(client)") else { continue }
                        #expect(Int(read) ?? 0 >= acknowledged, "client \(client) reads what it has replaced")
                    }
                    return [client: acknowledged]
                }
            }
            var values: [Int: Int] = [:]
            for _ in 0..<16 { values.merge(try await group.next() ?? [:]) { $1 } }
            isOver.set(1)
            try await group.waitForAll()
            return values
        }
        for (client, acknowledged) in values {
            let read = try await handle.get("id \(client)")
            #expect(read.flatMap { Int($0) } ?? 0 >= acknowledged)
        }
        store.close()
    }

    @Test func `closing the store waits for the writes that were handed over`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("1", under: "a")
        let session = try database.session()
        try session.run("BEGIN", until: TestDatabase.deadline)
        try session.run("UPDATE token SET written_at = 1", until: TestDatabase.deadline)
        let (isClosed, order) = (Shared(0), Shared(0))
        async let stored: Void = handle.put("2", under: "a")
        while store.state.waitingRequests.load(ordering: .acquiring) == 0 { await Task.yield() }
        try NamedThread.start("closing") {
            store.close()
            isClosed.set(order.value)
        }
        while !store.state.isClosed.load(ordering: .acquiring) { await Task.yield() }
        // So long that a store that does not wait is closed by now.
        try session.run("SELECT pg_sleep(0.5)", until: TestDatabase.deadline)
        order.set(1)
        try session.run("ROLLBACK", until: TestDatabase.deadline)
        try await stored
        while isClosed.value == 0 { await Task.yield() }
        #expect(isClosed.value == 1)
    }

    @Test func `a request that the database does not answer fails after its time, and others are served`() async throws
    {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database, changePostgres: { $0.timeout = .milliseconds(600) })
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("1", under: "a")
        let session = try database.session()
        try session.run("BEGIN", until: TestDatabase.deadline)
        try session.run("UPDATE token SET written_at = 1", until: TestDatabase.deadline)
        await #expect(throws: StoreError.self) { try await handle.put("2", under: "a") }
        #expect(try await handle.get("a") == "1")
        try session.run("ROLLBACK", until: TestDatabase.deadline)
        try await handle.put("3", under: "a")
        #expect(try await handle.get("a") == "3")
        store.close()
    }

    @Test func `a write whose commit may have been carried out is repeated, but not over a later one`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("1", under: "a")
        // The server's error that it does not know, once; a rollback does not undo a sequence.
        try database.sql("CREATE SEQUENCE attempts")
        try database.sql(
            """
            CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('attempts') = 1 THEN RAISE EXCEPTION 'result is ambiguous' USING ERRCODE = '40003'; END IF;
                RETURN NEW;
            END $$
            """)
        try database.sql(
            "CREATE TRIGGER fail_once BEFORE INSERT ON token FOR EACH ROW EXECUTE FUNCTION fail_once()")
        try await handle.put("2", under: "a")
        #expect(try await handle.get("a") == "2")
        // As another server has written it, whose clock is ahead.
        try database.sql("ALTER SEQUENCE attempts RESTART")
        try database.sql("UPDATE token SET version = version + 100000000000")
        await #expect(throws: StoreError.self) { try await handle.put("3", under: "a") }
        #expect(try await handle.get("a") == "2")
        store.close()
    }

    @Test func `a request beyond the limit is refused at once`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database, changePostgres: { $0.requestLimit = 2 })
        let handle = try await ConformanceHandle.open(store)
        let refused = try await handle.begin([("a", "1"), ("b", "2"), ("c", "3")])
        #expect(refused == [2])
        await handle.flush()
        while await handle.outcomes.count < 3 { try await Task.sleep(for: .milliseconds(5)) }
        #expect(try await handle.get("c") == nil)
        #expect(try await handle.get("b") == "2")
        // Reads that join another one count as well.
        let refusals = try await handle.fetchAll(["a", "a", "a"]).map { outcome in
            if case .failure(.overloaded(.requests)) = outcome { true } else { false }
        }
        #expect(refusals == [false, false, true])
        #expect(store.state.waitingRequests.load(ordering: .relaxed) == 0)
        #expect(store.state.waitingBytes.load(ordering: .relaxed) == 0)
        store.close()
    }

    @Test func `reads of one id share a statement only if it was not sent before they were asked for`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("0", under: "a")
        // Each reader has to see at least what was acknowledged before it began.
        let acknowledged = Shared(0)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                for number in 1...200 {
                    try await handle.put("\(number)", under: "a")
                    acknowledged.set(number)
                }
            }
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<200 {
                        let least = acknowledged.value
                        let read = try await handle.get("a").flatMap { Int($0) } ?? -1
                        #expect(read >= least)
                    }
                }
            }
            try await group.waitForAll()
        }
        store.close()
    }
}
#endif
