#if PostgreSQL
import System
import Testing

@testable import PostgresStore

@Suite struct HostFactsTests {
    @Test func `a plain server is known with its settings`() throws {
        let database = try TestDatabase()
        let facts = try HostFacts(of: database.session(), until: TestDatabase.deadline)
        #expect(facts.engine == .postgresql)
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

    @Test(
        arguments: [
            (
                "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc", [],
                "PostgreSQL 15.18"
            ),
            ("PostgreSQL 16.4 on x86_64-pc-linux-gnu, compiled by gcc", ["citus"], "Citus 16.4"),
            ("PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by gcc", ["aurora_version"], "Aurora 16.4"),
            ("PostgreSQL 15.7 on x86_64-pc-linux-gnu, compiled by Debian clang", ["alloydb"], "AlloyDB 15.7"),
            ("PostgreSQL 17.2 (a1b2c3d) on x86_64-pc-linux-gnu, compiled by gcc", ["neon"], "Neon 17.2"),
            (
                "PostgreSQL 15.12-YB-2025.1.0.1-b0 on x86_64-pc-linux-gnu, compiled by clang", [],
                "YugabyteDB 15.12-YB-2025.1.0.1-b0"
            ),
            ("CockroachDB CCL v24.1.3 (x86_64-pc-linux-gnu, built 2024/07/29)", [], "CockroachDB v24.1.3"),
            ("Something of 2031", [], "2031"),
        ] as [(String, Set<String>, String)])
    func `an engine is known by its version and what only it has`(
        _ version: String, _ signs: Set<String>, _ software: String
    ) {
        var facts = Self.facts(.postgresql)
        facts.engine = PostgresEngine(version: version, signs: signs)
        facts.version = HostFacts.number(in: version)
        #expect(facts.software == software)
    }

    /// Of a host on which nothing is wrong.
    static func facts(_ engine: PostgresEngine) -> HostFacts {
        HostFacts(
            address: "db1:5432", engine: engine, version: "15.18", isInRecovery: false, isReadOnly: false, timeline: 1,
            synchronousCommit: "on", synchronousStandbyNames: "ANY 1 (db2, db3)", fsync: "on", fullPageWrites: "on",
            clockDifference: 0, isPooled: false)
    }
}
#endif
