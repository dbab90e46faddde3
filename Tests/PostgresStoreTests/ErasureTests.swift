#if PostgreSQL
import StoreConformance
import System
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// Erasures beside uncommitted transactions on the same user.
@Suite struct ErasureTests {
    private let database: TestDatabase
    private let store: PostgresTokenStore

    init() throws {
        database = try TestDatabase()
        store = try PostgresTokenStore(database)
    }

    /// Begins a transaction, as another server would, and runs a statement in it.
    private func transaction(_ statements: String...) throws -> BlockingConnection {
        let connection = try database.connection()
        for statement in ["BEGIN"] + statements { try connection.run(statement) }
        return connection
    }

    private func commit(_ connection: BlockingConnection) throws {
        try connection.run("COMMIT")
    }

    /// Waits until this many statements of the store wait for a lock.
    private func waiting(_ count: Int64) async throws {
        try await eventually { try database.waiting() == count }
    }

    @Test func `an erasure waits for the first write of a user, and erases it`() async throws {
        let handle = try await WaitingHandle.open(store)
        let first = try transaction(
            """
            INSERT INTO token (key, version, written_at, key_number, value)
            VALUES (\(store.state.key(of: "anna")), \(store.state.versions.next()), 0, 1, 'first')
            """)
        async let erasing = handle.erase("anna")
        try await waiting(1)
        try commit(first)
        #expect(try await erasing == Erasure(hadToken: true, sessions: 0))
        #expect(try database.number("SELECT count(*) FROM token WHERE value IS NOT NULL") == 0)
        store.close()
    }

    @Test func `an erasure leaves a tombstone that an earlier write does not replace, and a later one does`()
        async throws
    {
        let (handle, delayed) = (try await WaitingHandle.open(store), try await WaitingHandle.open(store))
        // A new connection sends what has gathered, so both connections, for reads and for writes, must be there first.
        _ = try await delayed.get("anna")
        _ = try await delayed.remove("anna")
        // It gets its version now, and reaches the database after the erasure.
        let begun = try await delayed.begin([("anna", "delayed")]).writes
        #expect(try await handle.erase("anna") == Erasure(hadToken: false, sessions: 0))
        try await delayed.flush()
        try await eventually { begun.ended == [0] }
        #expect(try await handle.get("anna") == nil)
        #expect(try database.number("SELECT count(*) FROM token WHERE value IS NULL") == 1)
        try await delayed.put("later", under: "anna")
        #expect(try await handle.get("anna") == "later")
        #expect(try await handle.erase("anna") == Erasure(hadToken: true, sessions: 0))
        try await delayed.put("again", under: "anna", if: .missing)
        #expect(try await handle.get("anna") == "again")
        store.close()
    }

    @Test func `a write that depends on a session waits for the erasure that ends it, and fails`() async throws {
        let handle = try await WaitingHandle.open(store)
        try await handle.put("before", under: "anna")
        try await handle.begin("s1", of: "anna")
        let session = try await handle.key("s1")
        for match in [WriteCondition.Match.any, .exists, .missing] {
            let erasure = try transaction(
                "DELETE FROM session WHERE user_key = \(store.state.key(of: "anna"))",
                """
                UPDATE token SET value = NULL, key_number = -1, version = version + 1
                WHERE key = \(store.state.key(of: "anna"))
                """)
            let writing = Task { try await handle.put("after", under: "anna", if: match, session: session) }
            try await waiting(1)
            try commit(erasure)
            await #expect(throws: StoreError.sessionEnded) { try await writing.value }
            #expect(try await handle.get("anna") == nil)
            try await handle.put("before", under: "anna")
            try await handle.begin("s1", of: "anna")
        }
        store.close()
    }

    @Test func `an erasure waits for a write that depends on a session which it ends, and erases that`() async throws {
        let (handle, other) = (try await WaitingHandle.open(store), try await WaitingHandle.open(store))
        try await handle.put("before", under: "anna")
        try await handle.begin("s1", of: "anna")
        let session = try await handle.key("s1")
        let blocking = try transaction("SELECT FROM token FOR UPDATE")
        async let writing = handle.put("after", under: "anna", if: .any, session: session)
        try await waiting(1)
        async let erasing = other.erase("anna")
        try await waiting(2)
        try commit(blocking)
        _ = try await writing
        #expect(try await erasing == Erasure(hadToken: true, sessions: 1))
        #expect(try await handle.get("anna") == nil)
        store.close()
    }

    @Test func `a login that an erasure overlaps leaves no session`() async throws {
        let (handle, other) = (try await WaitingHandle.open(store), try await WaitingHandle.open(store))
        try await handle.begin("s1", of: "anna")
        // Holds up the login after it has stored the session and before it commits.
        let blocking = try transaction("SELECT FROM session FOR UPDATE")
        async let login = handle.begin("s2", of: "anna", perUser: 1)
        try await waiting(1)
        async let erasing = other.erase("anna")
        try await waiting(2)
        try commit(blocking)
        _ = try await login
        #expect(try await erasing == Erasure(hadToken: false, sessions: 1))
        #expect(try database.number("SELECT count(*) FROM session") == 0)
        store.close()
    }

    @Test func `nothing of an erased user is in a row, except a keyed hash`() async throws {
        let handle = try await WaitingHandle.open(store)
        try await handle.put("secret", under: "anna-4711")
        try await handle.begin("s1", of: "anna-4711")
        try await handle.erase("anna-4711")
        let rows = try database.sql(
            "SELECT row_to_json(token)::text FROM token UNION ALL SELECT row_to_json(session)::text FROM session")
        let key = store.state.key(of: "anna-4711").dropFirst(3).dropLast(8)
        #expect(rows.count == 1 && rows[0][0]?.contains(key) == true)
        let user = Array("anna-4711".utf8).map { String($0, radix: 16) }.joined()
        #expect(rows[0][0]?.contains(user) == false && rows[0][0]?.contains(#""value":null"#) == true)
        store.close()
    }

    @Test func `a session of a key that is lost ends all the same`() async throws {
        let handle = try await WaitingHandle.open(store)
        let made = try await handle.begin("s1", of: "anna")
        try database.allow(keys: 9)
        try database.sql("UPDATE session SET key_number = 9")
        #expect(try await handle.endSession(id: made.id) == EndedSession(id: made.id, user: nil))
        store.close()
    }
}
#endif
