#if PostgreSQL
import StoreConformance
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// Requests of one turn that share a statement.
@Suite struct SharedStatementTests {
    private func id(_ number: Int) -> String { "id \(number)" }

    /// Whether the last statement of some connection to the database begins with this text.
    private func hasSent(_ beginning: String, to database: TestDatabase) throws -> Bool {
        try database.number(
            """
            SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND starts_with(query, '\(beginning)') AND query LIKE '%unnest(%'
            """) ?? 0 > 0
    }

    @Test(arguments: [1, 2, 128, 300])
    func `tokens of all lengths are stored and found together`(_ count: Int) async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await WaitingHandle.open(store)
        let lengths = [0, 1, 330, 8_000, 100_000]
        let tokens = (0..<count).map { number in
            (id: id(number), value: [UInt8](repeating: UInt8(number & 0xff), count: lengths[number % lengths.count]))
        }
        // The second time, the rows exist already.
        for _ in 0..<2 {
            for outcome in try await handle.putAll(tokens) { _ = try outcome.get() }
        }
        #expect(try hasSent("INSERT INTO token", to: database))
        #expect(try database.number("SELECT count(*) FROM token") == Int64(count))
        // Among the ids are missing ones, and one that is asked for twice.
        let missing = (0..<4).map { "missing \($0)" }
        let asked = tokens.map(\.id) + missing + [tokens[0].id]
        let limit = 50_000
        let found = try await handle.fetchAll(asked, upTo: limit)
        for (token, outcome) in zip(tokens + missing.map { ($0, []) } + [tokens[0]], found) {
            switch try outcome.get() {
            case .found(let info, _, _, _): #expect(info == token.value)
            case .longer: #expect(token.value.count > limit)
            case .unrefreshed: Issue.record("\(token.id) was to be refreshed")
            case .nothing: #expect(missing.contains(token.id), "\(token.id) is missing")
            }
        }
        #expect(try hasSent("SELECT found", to: database))
        // Long values are read one by one.
        for (token, outcome) in zip(tokens, try await handle.fetchAll(tokens.map(\.id))) {
            guard case .found(let info, _, _, _) = try outcome.get() else {
                Issue.record("\(token.id) is missing")
                continue
            }
            #expect(info == token.value)
        }
        #expect(try !hasSent("SELECT found", to: database))
        store.close()
    }

    @Test func `a read finds only what lives and is short enough`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(
            database, change: { $0.retention.afterWritten = .seconds(1_000) })
        let handle = try await WaitingHandle.open(store)
        let tokens = ["short", "long", "removed", "old"].map { (id: $0, value: Array("value of \($0)".utf8)) }
        for outcome in try await handle.putAll(tokens + [("longest", [UInt8](repeating: 1, count: 1_000))]) {
            _ = try outcome.get()
        }
        #expect(try await handle.remove("removed"))
        try database.sql("UPDATE token SET written_at = written_at - 2000 WHERE key = \(store.state.key(of: "old"))")
        let found = try await handle.fetchAll(["short", "longest", "removed", "old", "long"], upTo: 100).map {
            switch try $0.get() {
            case .found(let info, _, _, _): String(decoding: info, as: UTF8.self)
            case .nothing: "nothing"
            case .longer: "longer"
            case .unrefreshed: "unrefreshed"
            }
        }
        #expect(found == ["value of short", "longer", "nothing", "nothing", "value of long"])
        store.close()
    }

    @Test func `a later version of one row does not touch the others, and is replaced`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await WaitingHandle.open(store)
        let tokens = (0..<10).map { (id: id($0), value: Array("value \($0)".utf8)) }
        for outcome in try await handle.putAll(tokens) { _ = try outcome.get() }
        // Written by a server whose clock is an hour ahead.
        try database.sql(
            """
            UPDATE token SET version = version + (3600000000::bigint << \(VersionClock.processBits))
            WHERE key = \(store.state.key(of: id(4)))
            """)
        let later = try #require(try await handle.version(of: id(4)))
        let earlier = try #require(try await handle.version(of: id(3)))
        let second = try PostgresTokenStore(database)
        let other = try await WaitingHandle.open(second)
        let again = tokens.map { (id: $0.id, value: $0.value + [33]) }
        let versions = try await other.putAll(again).map { try $0.get() }
        #expect(versions[4] > later)
        #expect(earlier < versions[3] && versions[3] < later)
        for number in 0..<10 { #expect(try await other.get(id(number)) == "value \(number)!") }
        store.close()
        second.close()
    }

    @Test func `an error of one row fails that write alone`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        let handle = try await WaitingHandle.open(store)
        try database.sql("ALTER TABLE token ADD CHECK (octet_length(value) < 200)")
        let tokens = (0..<30).map { number in
            (id: id(number), value: number == 11 ? [UInt8](repeating: 1, count: 200) : Array("value \(number)".utf8))
        }
        for (number, outcome) in try await handle.putAll(tokens).enumerated() {
            switch outcome {
            case .success: #expect(number != 11)
            case .failure(.write(let fault)):
                #expect(number == 11)
                #expect(fault.isOfOneToken)
                #expect(fault.description.contains("23514"))
            case .failure(let error): Issue.record("\(error)")
            }
        }
        for number in 0..<30 where number != 11 { #expect(try await handle.get(id(number)) == "value \(number)") }
        #expect(try await handle.get(id(11)) == nil)
        store.close()
    }

    @Test func `two servers that write the same tokens in different orders do not wait for each other`() async throws {
        let database = try TestDatabase()
        let stores = [try PostgresTokenStore(database), try PostgresTokenStore(database)]
        let ids = (0..<40).map(id)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (number, store) in stores.enumerated() {
                let handle = try await WaitingHandle.open(store)
                group.addTask {
                    for _ in 0..<50 {
                        let order = number == 0 ? ids : ids.reversed()
                        for outcome in try await handle.putAll(order.map { ($0, [1, 2, 3]) }) {
                            // On a busy machine a write may wait so long that the token of the other server stays.
                            if case .failure(let error) = outcome, !error.mayRetry { throw error }
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        for store in stores {
            let deadlocks = store.metrics.remote?.retries.first { $0.cause == SQLState.deadlock.code }
            #expect(deadlocks?.count == 0)
            store.close()
        }
    }

    /// PostgreSQL keeps the plan of a prepared statement, even if the table was empty when it was made and has grown since.
    @Test(arguments: [Statement.fetch, .fetchAll], [0, 1, 3_000])
    func `rows are found by the index, whatever the statistics say`(_ statement: Statement, rows: Int) throws {
        let database = try TestDatabase()
        let parameters =
            statement == .fetchAll
            ? "ARRAY['\\x01']::bytea[], ARRAY[1], ARRAY['\\x01']::bytea[], 100, 1" : "'\\x01', 100, '\\x01', 1"
        let plan = try database.sql(
            """
            INSERT INTO token (key, version, written_at, key_number, value)
            SELECT sha256(number::text::bytea), 1, 1, 0, 'value' FROM generate_series(1, \(rows)) AS number
            """,
            """
            INSERT INTO session (\(Statement.sessionColumns))
            SELECT sha256(number::text::bytea), substr(sha256(number::text::bytea), 1, 16), sha256('a'), 0, 1, 2, 1, number, 'a'
            FROM generate_series(1, \(rows)) AS number
            """,
            "SET plan_cache_mode = force_generic_plan", "PREPARE read AS \(statement.sql)",
            "EXPLAIN EXECUTE read (\(parameters))"
        ).compactMap { $0[0] }.joined(separator: "\n")
        for table in ["token", "session"] { #expect(plan.contains("Scan using \(table)_pkey"), "\(plan)") }
        #expect(!plan.contains("Seq Scan") && !plan.contains("Bitmap"), "\(plan)")
    }
}
#endif
