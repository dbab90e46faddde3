#if PostgreSQL
import Synchronization
import System
import Testing

@testable import PostgresStore

@Suite struct MigratorTests {
    /// A column is added in version 2, and takes the place of another in version 3.
    static let later =
        Migration.all + [
            Migration(version: 2, expansion: ["ALTER TABLE session ADD COLUMN IF NOT EXISTS device bytea"]),
            Migration(
                version: 3,
                expansion: ["ALTER TABLE sealing_key ADD COLUMN IF NOT EXISTS count bigint"],
                contraction: ["ALTER TABLE sealing_key DROP COLUMN IF EXISTS number"]),
        ]
    private static let time: Int64 = 1_800_000_000

    private func migrator(
        _ database: TestDatabase, _ migrations: [Migration] = Migration.all
    ) throws -> Migrator {
        Migrator(try database.session(), migrations: migrations) { Self.time }
    }

    private func columns(_ database: TestDatabase, of table: String) throws -> [String] {
        try database.sql(
            """
            SELECT column_name::text FROM information_schema.columns WHERE table_name = '\(table)'
            AND table_schema = current_schema() ORDER BY ordinal_position
            """
        ).compactMap { $0[0] }
    }

    private func versions(_ database: TestDatabase) throws -> [[String?]] {
        try database.sql("SELECT schema_version::text, oldest_schema::text FROM store")
    }

    private func register(_ name: String, schema: Int, seenAt: Int64, _ database: TestDatabase) throws {
        try RegisteredServer(
            id: Array(name.utf8), name: name, version: "0.\(schema)", schemaVersion: schema, keyNumbers: [1, 2],
            startedAt: Self.time - 500, seenAt: seenAt
        ).write(to: database.session(), until: TestDatabase.deadline)
    }

    // MARK: - Making the tables

    @Test func `the tables are made, and making them again changes nothing`() throws {
        let database = try TestDatabase(isEmpty: true)
        for _ in 0..<2 {
            try migrator(database).expand()
            #expect(try versions(database) == [["1", "1"]])
            #expect(
                try database.sql("SELECT key_ring::text, is_sealed::text, looked_at::text FROM store") == [
                    [nil, "true", nil]
                ])
            for (table, _) in TablePrivileges.all { #expect(try !columns(database, of: table).isEmpty) }
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
        let migrators = try (0..<4).map { _ in try migrator(database, Self.later) }
        try await withThrowingTaskGroup { group in
            for migrator in migrators {
                let migrator = Unchecked(value: migrator)
                group.addTask { try migrator.value.expand() }
            }
            try await group.waitForAll()
        }
        #expect(try versions(database) == [["3", "3"]])
    }

    @Test func `a migration that fails leaves the schema as it was`() throws {
        let database = try TestDatabase()
        let failing =
            Migration.all + [
                Migration(
                    version: 2,
                    expansion: [
                        "ALTER TABLE sealing_key ADD COLUMN half bigint", "ALTER TABLE nothing ADD COLUMN a int",
                    ])
            ]
        #expect(throws: SchemaFault.self) { try migrator(database, failing).expand() }
        #expect(try columns(database, of: "sealing_key") == ["number"])
        #expect(try versions(database) == [["1", "1"]])
    }

    // MARK: - Expanding and contracting

    @Test func `servers of the version before go on until the contraction, which waits for them`() throws {
        let database = try TestDatabase()
        try migrator(database, Array(Self.later[..<2])).expand()
        try register("old", schema: 2, seenAt: Self.time - 5, database)
        let newer = try migrator(database, Self.later)
        try newer.expand()
        #expect(try versions(database) == [["3", "2"]])
        #expect(try columns(database, of: "sealing_key") == ["number", "count"])
        #expect(SchemaCheck.fault(of: try #require(try newer.row()), known: 2) == nil)
        #expect(try newer.uncontracted() == [3])
        #expect(try newer.servers(before: 3).map(\.name) == ["old"])

        #expect(throws: SchemaFault.self) { try newer.contract() }
        #expect(try versions(database) == [["3", "2"]])
        #expect(try columns(database, of: "sealing_key") == ["number", "count"])

        // The server was upgraded.
        try register("old", schema: 3, seenAt: Self.time - 5, database)
        try newer.contract()
        #expect(try versions(database) == [["3", "3"]])
        #expect(try columns(database, of: "sealing_key") == ["count"])
        #expect(try newer.uncontracted().isEmpty)
        #expect(
            SchemaCheck.fault(of: try #require(try newer.row()), known: 2) == .newer(found: 3, oldest: 3, known: 2))
        // Again, which does nothing.
        try newer.contract()
        try newer.expand()
        #expect(try versions(database) == [["3", "3"]])
    }

    @Test func `a server that was not seen for a minute does not hold up the contraction`() throws {
        let database = try TestDatabase()
        try register("crashed", schema: 1, seenAt: Self.time - RegisteredServer.silence, database)
        let newer = try migrator(database, Self.later)
        try newer.expand()
        try newer.contract()
        #expect(try versions(database) == [["3", "3"]])
    }

    @Test func `an expansion is refused while servers run that it would break`() throws {
        let database = try TestDatabase()
        try register("old", schema: 1, seenAt: Self.time, database)
        let newer = try migrator(database, Self.later)
        do throws(SchemaFault) {
            try newer.expand()
            Issue.record("it is not refused")
        } catch {
            #expect("\(error)".contains("old (token-cache 0.1, schema 1, seen 0 seconds ago)"))
        }
        // What does not break it is done.
        #expect(try versions(database) == [["2", "1"]])
    }

    @Test func `a new database gets the new form only`() throws {
        let database = try TestDatabase(isEmpty: true)
        try migrator(database, Self.later).expand()
        #expect(try columns(database, of: "sealing_key") == ["count"])
        #expect(try versions(database) == [["3", "3"]])
    }

    @Test func `an earlier program leaves a later schema alone`() throws {
        let database = try TestDatabase()
        try migrator(database, Self.later).expand()
        try migrator(database).expand()
        try migrator(database).contract()
        #expect(try versions(database) == [["3", "2"]])
    }

    @Test func `a table that others use is waited for in short attempts`() async throws {
        let database = try TestDatabase()
        let other = try database.session()
        try other.run("BEGIN", until: TestDatabase.deadline)
        try other.run("LOCK TABLE session IN ACCESS SHARE MODE", until: TestDatabase.deadline)
        let migrator = Unchecked(value: try migrator(database, Array(Self.later[..<2])))
        async let isDone: Void = migrator.value.expand()
        // Until it has given up a lock for the first time: then a server gets through.
        while try database.number("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'session'::regclass")
            != 1
        {}
        try database.sql("INSERT INTO session VALUES ('a', 'b', 'c', 1, 1, 1, 1, 1, 'd')")
        try other.run("COMMIT", until: TestDatabase.deadline)
        try await isDone
        #expect(try versions(database) == [["2", "1"]])
    }

    // MARK: - Roles

    @Test func `a server's role gets what it needs and nothing else`() throws {
        let database = try TestDatabase(isEmpty: true)
        let (owner, server) = ("\(database.name)_owner", "\(database.name)_server")
        try database.sql(
            "CREATE ROLE \(owner) LOGIN", "CREATE ROLE \(server) LOGIN", "CREATE SCHEMA AUTHORIZATION \(owner)",
            "ALTER DATABASE \(database.name) SET search_path = \(owner)")
        let migrator = Migrator(try database.session(user: owner))
        try migrator.expand()
        let session = try database.session(user: server)
        #expect(throws: SchemaFault.self) { try SchemaCheck.run(on: session, until: TestDatabase.deadline) }
        #expect(try migrator.grant(to: server))
        #expect(try SchemaCheck.run(on: session, until: TestDatabase.deadline).schemaVersion == 1)
        for statement in [
            "DELETE FROM store", "INSERT INTO store VALUES (1, 1, 1, NULL, true, NULL)",
            "TRUNCATE token", "DROP TABLE token", "CREATE TABLE other (a bigint)",
            "ALTER TABLE token ADD COLUMN a bigint",
        ] {
            #expect(throws: PostgresError.self, "\(statement)") {
                try session.run(statement, until: TestDatabase.deadline)
            }
        }
        #expect(try !migrator.grant(to: owner))
        #expect(throws: SchemaFault.unknownRole("no such role")) { try migrator.grant(to: "no such role") }
    }

    @Test func `a role that may not make tables is told whose task that is`() throws {
        let database = try TestDatabase(isEmpty: true)
        let role = "\(database.name)_\"odd name"
        try database.sql("CREATE ROLE \"\(role.replacing("\"", with: "\"\""))\" LOGIN")
        let session = try database.session(user: "\(database.name)_%22odd%20name")
        do throws(SchemaFault) {
            try Migrator(session).expand()
            Issue.record("it is not refused")
        } catch {
            #expect(
                "\(error)".hasPrefix(
                    "the role \(role) may not make or change the tables (permission denied for schema public"))
        }
    }

    // MARK: - What a server says

    @Test func `a server says what is missing`() throws {
        let database = try TestDatabase(isEmpty: true)
        func fault(known: Int = 1, user: String = "postgres") throws -> String {
            let session = try database.session(user: user)
            do throws(SchemaFault) {
                _ = try SchemaCheck.run(on: session, known: known, until: TestDatabase.deadline)
                return ""
            } catch {
                return "\(error)"
            }
        }
        #expect(try fault().hasPrefix("the database \(database.name) on "))
        #expect(try fault().contains("has no tables of token-cache"))
        try migrator(database).expand()
        #expect(try fault().isEmpty)
        #expect(
            try fault(known: 2).hasPrefix("the database has schema 1, and this version of token-cache needs schema 2"))
        let role = "\(database.name)_poor"
        try database.sql("CREATE ROLE \(role) LOGIN", "GRANT SELECT ON store, token TO \(role)")
        #expect(
            try fault(user: role).hasPrefix(
                "the role \(role) lacks privileges: INSERT on token, UPDATE on token, DELETE on token, "))
        try database.sql("REVOKE SELECT ON store FROM \(role)")
        #expect(try fault(user: role).hasPrefix("the role \(role) lacks privileges: "))
        // A later program's expansion, and its contraction.
        try database.sql("UPDATE store SET schema_version = 2")
        #expect(try fault().isEmpty)
        try database.sql("UPDATE store SET oldest_schema = 2")
        #expect(try fault().hasPrefix("the database has schema 2, which only servers that know schema 2 can use"))
    }
}

/// Hands a value over to the one thread that uses it.
struct Unchecked<Value>: @unchecked Sendable {
    let value: Value
}
#endif
