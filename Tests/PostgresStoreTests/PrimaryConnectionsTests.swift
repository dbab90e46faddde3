#if PostgreSQL
import Dispatch
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct PrimaryConnectionsTests {
    private func number(_ connections: PrimaryConnections, within limit: Duration = .seconds(30)) throws -> Int64? {
        try connections.perform(or: StoreError.read, within: limit) { (connection) throws(PostgresError) in
            try connection.integer("SELECT pg_backend_pid()")
        }
    }

    @Test func `a connection is kept also after a failed statement, and one that the server has closed is replaced`()
        throws
    {
        let database = try TestDatabase()
        let connections = PrimaryConnections(database.options())
        let first = try #require(try number(connections))
        let error = #expect(throws: StoreError.self) {
            try connections.perform(within: .seconds(30)) { (connection) throws(PostgresError) in
                _ = try connection.run("SELECT * FROM nothing")
            }
        }
        guard case .write(let fault) = error, fault.description.contains("42P01") else {
            Issue.record("the error is \(String(describing: error))")
            return
        }
        #expect(try number(connections) == first)
        #expect(connections.facts?.isWritable == true)
        try database.sql("SELECT pg_terminate_backend(\(first), 10000)::text")
        #expect(try number(connections) != first)
    }

    @Test func `a call whose connection is lost is repeated`() throws {
        let database = try TestDatabase()
        defer { withExtendedLifetime(database) {} }
        let connections = PrimaryConnections(database.options())
        var attempts = 0
        let number = try connections.perform(within: .seconds(30)) { (connection) throws(PostgresError) in
            attempts += 1
            if attempts == 1 { try connection.run("SELECT pg_terminate_backend(pg_backend_pid())") }
            return try connection.integer("SELECT 7")
        }
        #expect(number == 7 && attempts == 2)
    }

    @Test func `a call that ends the server's process each time is not repeated for as long as it may take`() throws {
        let database = try TestDatabase()
        defer { withExtendedLifetime(database) {} }
        let connections = PrimaryConnections(database.options())
        var attempts = 0
        #expect(throws: StoreError.self) {
            try connections.perform(within: .seconds(86_400)) { (connection) throws(PostgresError) in
                attempts += 1
                _ = try connection.run("SELECT pg_terminate_backend(pg_backend_pid())")
            }
        }
        #expect(attempts > 1 && attempts <= PrimaryConnections.attempts)
    }

    @Test func `a host that takes no writes is no primary, and the error names each host`() throws {
        let database = try TestDatabase()
        try database.sql("CREATE ROLE reader_\(database.name) LOGIN")
        try database.sql("ALTER ROLE reader_\(database.name) SET default_transaction_read_only = on")
        let readOnly = PrimaryConnections(database.options(user: "reader_\(database.name)"))
        let refusal = #expect(throws: PostgresError.self) { try readOnly.connect(until: TestDatabase.deadline) }
        #expect(refusal?.text.contains("takes no writes") == true)
        func connections(_ folders: String...) -> PrimaryConnections {
            PrimaryConnections(
                PostgresOptions(
                    url: "postgresql://postgres@/\(database.name)",
                    hosts: folders.map { DatabaseHost(name: $0, address: "", port: "5432") }, password: { nil },
                    connections: 1, timeout: .seconds(60), durability: .local))
        }
        // The first host refuses connections.
        let both = connections("/nowhere", database.cluster.folder)
        #expect(try number(both) != nil)
        let none = connections("/nowhere", "/elsewhere")
        let error = #expect(throws: PostgresError.self) { try none.connect(until: TestDatabase.deadline) }
        let text = error?.description ?? ""
        #expect(text.contains("/nowhere:5432: ") && text.contains("/elsewhere:5432: "), "\(text)")
    }

    @Test func `a call that takes too long fails at its deadline, and the next one has a connection of its own`() throws
    {
        let database = try TestDatabase()
        let connections = PrimaryConnections(database.options())
        #expect(try number(connections) != nil)
        var (hasBegun, error) = (false, nil as StoreError?)
        // On a busy machine the time may be over before the statement begins.
        while !hasBegun {
            error = #expect(throws: StoreError.self) {
                try connections.perform(within: .milliseconds(300)) { (connection) throws(PostgresError) in
                    hasBegun = true
                    _ = try connection.run("SELECT pg_sleep(600)")
                }
            }
        }
        #expect(error?.description.contains("has not answered in time") == true)
        #expect(try number(connections) != nil)
        try database.sql(
            """
            SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
            WHERE query LIKE 'SELECT pg_sleep%' AND datname = current_database()
            """)
    }
}
#endif
