#if PostgreSQL
import Synchronization
import System
import Testing

@testable import PostgresStore

@Suite struct MigratorTests {
    private func version(_ database: TestDatabase) throws -> [[String?]] {
        try database.sql("SELECT schema_version::text FROM store")
    }

    // MARK: - Making the tables

    @Test func `the tables are made, and making them again changes nothing`() throws {
        let database = try TestDatabase(isEmpty: true)
        for isFirst in [true, false] {
            #expect(try Migrator(database.connection()).makeTables() == isFirst)
            #expect(
                try database.sql(
                    "SELECT schema_version::text, key_ring::text, is_sealed::text, looked_at::text FROM store")
                    == [["\(Schema.version)", nil, "true", nil]])
            #expect(try TablePrivileges.missing(for: database.connection()).isEmpty)
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

    @Test func `several that run at once make the tables once`() async throws {
        let database = try TestDatabase(isEmpty: true)
        let migrators = try (0..<4).map { _ in Unchecked(value: Migrator(try database.connection())) }
        let made = try await withThrowingTaskGroup { group in
            for migrator in migrators { group.addTask { try migrator.value.makeTables() } }
            return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(made == 1)
        #expect(try version(database) == [["\(Schema.version)"]])
    }

    @Test func `tables of which one cannot be made are not made`() throws {
        let database = try TestDatabase(isEmpty: true)
        // Another program's, as it would be found last.
        try database.sql("CREATE TABLE store (a int)")
        #expect(throws: SchemaFault.self) { try Migrator(database.connection()).makeTables() }
        #expect(try database.number("SELECT count(*) FROM pg_class WHERE relname IN ('token', 'session')") == 0)
    }

    // MARK: - Roles

    @Test func `a server's role gets what it needs and nothing else`() throws {
        let database = try TestDatabase(isEmpty: true)
        let (owner, server) = ("\(database.name)_owner", "\(database.name)_server")
        try database.sql(
            "CREATE ROLE \(owner) LOGIN", "CREATE ROLE \(server) LOGIN", "CREATE SCHEMA AUTHORIZATION \(owner)",
            "ALTER DATABASE \(database.name) SET search_path = \(owner)")
        let migrator = Migrator(try database.connection(user: owner))
        #expect(try migrator.makeTables())
        let connection = try database.connection(user: server)
        #expect(throws: SchemaFault.self) { try SchemaCheck.look(connection).get() }
        #expect(try migrator.grant(to: server))
        #expect(try SchemaCheck.look(connection).get().schemaVersion == Schema.version)
        for statement in [
            "DELETE FROM store", "INSERT INTO store VALUES (1, 2, NULL, true, NULL)",
            "TRUNCATE token", "DROP TABLE token", "CREATE TABLE other (a bigint)",
            "ALTER TABLE token ADD COLUMN a bigint",
        ] {
            #expect(throws: PostgresError.self, "\(statement)") {
                try connection.run(statement)
            }
        }
        #expect(try !migrator.grant(to: owner))
        #expect(throws: SchemaFault.unknownRole("no such role")) { try migrator.grant(to: "no such role") }
    }

    @Test func `a role that may not make tables is told whose task that is`() throws {
        let database = try TestDatabase(isEmpty: true)
        let role = "\(database.name)_\"odd name"
        try database.sql("CREATE ROLE \"\(role.replacing("\"", with: "\"\""))\" LOGIN")
        let connection = try database.connection(user: "\(database.name)_%22odd%20name")
        do throws(SchemaFault) {
            _ = try Migrator(connection).makeTables()
            Issue.record("it is not refused")
        } catch {
            #expect(
                "\(error)".hasPrefix(
                    "the role \(role) may not make the tables (permission denied for schema public"))
        }
    }

    // MARK: - What a server says

    @Test func `a server says what is missing`() throws {
        let database = try TestDatabase(isEmpty: true)
        func fault(user: String = "postgres") throws -> String {
            let connection = try database.connection(user: user)
            switch try SchemaCheck.look(connection) {
            case .success: return ""
            case .failure(let fault): return "\(fault)"
            }
        }
        #expect(try fault().hasPrefix("the database \(database.name) on "))
        #expect(try fault().contains("has no tables of token-cache"))
        _ = try Migrator(database.connection()).makeTables()
        #expect(try fault().isEmpty)
        let role = "\(database.name)_poor"
        try database.sql("CREATE ROLE \(role) LOGIN", "GRANT SELECT ON store, token TO \(role)")
        #expect(
            try fault(user: role).hasPrefix(
                "the role \(role) lacks privileges: INSERT on token, UPDATE on token, DELETE on token, "))
        try database.sql("REVOKE SELECT ON store FROM \(role)")
        #expect(try fault(user: role).hasPrefix("the role \(role) lacks privileges: "))
        try database.sql("UPDATE store SET schema_version = 5")
        #expect(
            try fault().hasPrefix(
                "the database has schema 5, and this version of token-cache reads and writes schema 4 only: run the version that"
            ))
    }
}

/// Hands a value over to the one thread that uses it.
struct Unchecked<Value>: @unchecked Sendable {
    let value: Value
}
#endif
