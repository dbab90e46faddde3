#if PostgreSQL
import Synchronization
import System
import TestSupport
import Testing

@testable import PostgresStore

/// How the tables are made, and what a server needs of them.
@Suite struct MigratorTests {
    private func version(_ database: TestDatabase) throws -> [[String?]] {
        try database.sql("SELECT schema_version::text FROM store")
    }

    @Test func `the tables are made, and making them again changes nothing`() throws {
        let database = try TestDatabase(isEmpty: true)
        for isFirst in [true, false] {
            #expect(try Schema.makeTables(database.connection()) == isFirst)
            #expect(
                try database.sql(
                    "SELECT schema_version::text, key_ring::text, is_sealed::text, looked_at::text FROM store")
                    == [["\(Schema.version)", nil, "true", nil]])
            #expect(try Schema.check(database.connection()).schemaVersion == Schema.version)
        }
    }

    @Test func `values are not compressed, and pages have room for their next versions`() throws {
        let database = try TestDatabase()
        let storage =
            "SELECT attstorage::text FROM pg_attribute WHERE attrelid = 'token'::regclass AND attname = 'value'"
        #expect(try database.sql(storage) == [["e"]])
        let options = "SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE oid = 'token'::regclass"
        #expect(try database.sql(options)[0][0]?.contains("fillfactor=85") ?? false)
    }

    private static let insertion = "INSERT INTO token (key, version, written_at, key_number) VALUES ('a', 1, 1, 7)"

    @Test func `a row with a new id locks no row that others need`() throws {
        let database = try TestDatabase()
        try database.allow(keys: 7)
        let connection = try database.connection()
        for statement in ["BEGIN", Self.insertion] { try connection.run(statement) }
        // If two transactions lock a row at once, PostgreSQL makes a MultiXact.
        #expect(try database.sql("SELECT xmax::text FROM sealing_key WHERE number = 7") == [["0"]])
    }

    @Test func `tables of version 1_0 are brought up to date, and keys are retired as before`() async throws {
        let database = try TestDatabase()
        try database.allow(keys: 7, 8)
        try database.sql(
            "DROP FUNCTION check_key CASCADE", "ALTER TABLE store DROP COLUMN walk",
            "ALTER TABLE token ADD FOREIGN KEY (key_number) REFERENCES sealing_key",
            "ALTER TABLE session ADD FOREIGN KEY (key_number) REFERENCES sealing_key")
        let (one, other) = (try database.connection(), try database.connection())
        let constraints = "SELECT count(*) FROM pg_constraint WHERE contype = 'f'"
        #expect(try database.number(constraints) == 3)
        try one.run("BEGIN")
        try one.run("SELECT FROM token")
        // It does not keep others waiting for a transaction that lasts.
        #expect(throws: PostgresError.self) { try Schema.makeTables(other) }
        try one.run("COMMIT")
        for _ in 0..<2 { #expect(try !Schema.makeTables(other)) }
        #expect(try database.number(constraints) == 1)

        try one.run("BEGIN")
        try one.run(Self.insertion)
        let retirement = Task { try StoreRow.retire(7, on: other) }
        try await eventually { try database.waiting("DELETE FROM sealing_key") == 1 }
        try one.run("COMMIT")
        #expect(try await !retirement.value)
        try one.run("UPDATE token SET key_number = 8")
        #expect(try StoreRow.retire(7, on: other))
        for statement in ["UPDATE token SET key_number = 7", Self.insertion.replacing("'a'", with: "'b'")] {
            let error = #expect(throws: PostgresError.self) { try one.run(statement) }
            #expect(error?.state == .foreignKeyViolation)
        }
        try database.sql("INSERT INTO session VALUES ('k', 'i', 'u', 1, 1, 9, 1, 8, '')", "DELETE FROM token")
        #expect(try !StoreRow.retire(8, on: other))
    }

    @Test func `indexes that only servers of version 1_0 use are dropped, also one that was interrupted`() throws {
        let database = try TestDatabase()
        let made = "SELECT count(*) FROM pg_class WHERE relname IN ('token_by_writing', 'session_by_use')"
        try database.sql(
            "CREATE INDEX token_by_writing ON token (written_at)", "CREATE INDEX session_by_use ON session (used_at)",
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'token_by_writing'::regclass")
        #expect(try database.number(made) == 2)
        for _ in 0..<2 { try Schema.dropFormerIndexes(database.connection()) }
        #expect(try database.number(made) == 0)
    }

    @Test func `several that run at once make the tables once`() async throws {
        let database = try TestDatabase(isEmpty: true)
        let connections = try (0..<4).map { _ in try database.connection() }
        let made = try await withThrowingTaskGroup { group in
            for connection in connections { group.addTask { try Schema.makeTables(connection) } }
            return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(made == 1)
        #expect(try version(database) == [["\(Schema.version)"]])
    }

    @Test func `if one table or index cannot be made, none is`() throws {
        let database = try TestDatabase(isEmpty: true)
        // Another program's table has the name of the index that is made last.
        try database.sql("CREATE TABLE session_by_user (a int)")
        #expect(throws: PostgresError.self) { try Schema.makeTables(database.connection()) }
        #expect(try database.number("SELECT count(*) FROM pg_class WHERE relname IN ('token', 'session')") == 0)
    }

    @Test func `the error of a role that may not make tables says which role may`() throws {
        let database = try TestDatabase(isEmpty: true)
        let role = "\(database.name)_\"odd name"
        try database.sql("CREATE ROLE \"\(role.replacing("\"", with: "\"\""))\" LOGIN")
        let connection = try database.connection(user: "\(database.name)_%22odd%20name")
        let error = #expect(throws: PostgresError.self) { try Schema.makeTables(connection) }
        let text = "the role \(role) may not make the tables (permission denied for schema public"
        #expect(error?.description.hasPrefix(text) == true)
    }

    @Test func `a server says what is missing`() throws {
        let database = try TestDatabase(isEmpty: true)
        func fault(user: String = "postgres") throws -> String {
            let connection = try database.connection(user: user)
            do throws(PostgresError) {
                _ = try Schema.check(connection)
                return ""
            } catch {
                return "\(error)"
            }
        }
        #expect(try fault().hasPrefix("the database \(database.name) on "))
        #expect(try fault().contains("has no tables of token-cache"))
        _ = try Schema.makeTables(database.connection())
        #expect(try fault().isEmpty)
        try database.sql(
            "CREATE SCHEMA other", "ALTER TABLE sealing_key SET SCHEMA other", "ALTER TABLE store SET SCHEMA other")
        #expect(
            try fault().contains(
                "set the role's search_path to their schema (there are such tables in other), or make them with"))
        try database.sql("ALTER TABLE other.sealing_key SET SCHEMA public", "ALTER TABLE other.store SET SCHEMA public")
        try database.sql("ALTER TABLE token SET UNLOGGED")
        #expect(
            try fault().hasPrefix("a crash of the database would empty token, as UNLOGGED tables are not durable: run"))
        try database.sql("ALTER TABLE token SET LOGGED")
        #expect(try fault().isEmpty)
        let role = "\(database.name)_poor"
        try database.sql("CREATE ROLE \(role) LOGIN", "GRANT SELECT ON store, token TO \(role)")
        #expect(
            try fault(user: role).hasPrefix(
                "the role \(role) lacks privileges (INSERT on token, UPDATE on token, DELETE on token, "))
        try database.sql("REVOKE SELECT ON store FROM \(role)")
        #expect(try fault(user: role).hasPrefix("the role \(role) lacks privileges ("))
        try database.sql("UPDATE store SET schema_version = 5")
        #expect(throws: PostgresError.self) { try Schema.makeTables(database.connection()) }
        #expect(
            try fault().hasPrefix(
                "the database has schema 5, and this version of token-cache reads and writes schema 4 only: run the version that"
            ))
    }
}
#endif
