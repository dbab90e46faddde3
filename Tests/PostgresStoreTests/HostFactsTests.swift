#if PostgreSQL
import System
import Testing

@testable import PostgresStore

@Suite struct HostFactsTests {
    @Test func `a plain server is known with its settings`() throws {
        let database = try TestDatabase()
        let facts = try HostFacts(of: database.session(), until: TestDatabase.deadline)
        #expect(facts.software == "PostgreSQL \(facts.version)")
        #expect(facts.version.split(separator: ".").first.flatMap { Int($0) } ?? 0 >= 13)
        #expect(facts.isWritable)
        #expect(facts.timeline == 1)
        #expect(facts.synchronousCommit == "on")
        #expect(facts.synchronousStandbyNames == "")
        #expect(facts.fsync == "on")
        #expect(facts.fullPageWrites == "on")
        #expect(!facts.isPooled)
        // Both clocks are this machine's.
        #expect(abs(facts.clockDifference) < 10_000_000)
    }

    @Test func `a role without privileges learns the same`() throws {
        let database = try TestDatabase()
        let role = "\(database.name)_nobody"
        try database.sql("CREATE ROLE \(role) LOGIN")
        let facts = try HostFacts(of: database.session(user: role), until: TestDatabase.deadline)
        #expect(facts.timeline == 1)
        #expect(facts.synchronousStandbyNames == "")
    }

    @Test func `settings of a role and of a database count`() throws {
        let database = try TestDatabase()
        try database.sql(
            "ALTER DATABASE \(database.name) SET default_transaction_read_only = on",
            "ALTER DATABASE \(database.name) SET synchronous_commit = off")
        let facts = try HostFacts(of: database.session(), until: TestDatabase.deadline)
        #expect(!facts.isWritable)
        #expect(!facts.isInRecovery)
        #expect(facts.synchronousCommit == "off")
    }

    /// Of a host on which nothing is wrong.
    static func facts() -> HostFacts {
        HostFacts(
            address: "db1:5432", version: "15.18", isInRecovery: false, isReadOnly: false, timeline: 1,
            synchronousCommit: "on", synchronousStandbyNames: "ANY 1 (db2, db3)", fsync: "on", fullPageWrites: "on",
            clockDifference: 0, isPooled: false)
    }
}
#endif
