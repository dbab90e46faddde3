#if PostgreSQL
import Testing
import TokenStore

@testable import PostgresStore

/// What the doctor says of the hosts of a database.
struct InspectionTests {
    private func facts(_ address: String = "db1:5432", isStandby: Bool = false) -> HostFacts {
        HostFacts(
            address: address, version: "15.18", isInRecovery: isStandby, isReadOnly: false,
            timeline: isStandby ? nil : 3, synchronousCommit: "on", synchronousStandbyNames: "ANY 1 (*)", fsync: "on",
            fullPageWrites: "on", clockDifference: 4_000, isPooled: false)
    }

    private func primary(_ change: (inout HostInspection.Answer) -> Void = { _ in }) -> HostInspection {
        var answer = HostInspection.Answer(facts: facts(), role: "app")
        answer.standbys = [HostInspection.Standby(name: "db2", isSynchronous: true)]
        answer.tables = .success(
            StoreRow(
                schemaVersion: Schema.version, keyRing: [UInt8](repeating: 1, count: 32), sealingKey: 1,
                fingerprints: [1: "a"]))
        change(&answer)
        return HostInspection(name: "db1:5432", outcome: .success(answer))
    }

    private func standby(_ change: (inout HostInspection.Answer) -> Void = { _ in }) -> HostInspection {
        var answer = HostInspection.Answer(facts: facts("db2:5432", isStandby: true), role: "app")
        answer.isFollowing = true
        change(&answer)
        return HostInspection(name: "db2:5432", outcome: .success(answer))
    }

    private func inspect(
        _ hosts: [HostInspection], _ durability: StoreDurability = .synchronous
    ) -> StoreInspection {
        InspectionRules(hosts, durability).inspection
    }

    private func bad(_ hosts: [HostInspection], _ durability: StoreDurability = .synchronous) -> [StoreFinding] {
        inspect(hosts, durability).findings.filter { $0.state != .fine }
    }

    /// Expects one finding that is not fine.
    private func expect(
        _ state: StoreFinding.State, _ text: String, advice: String, of hosts: HostInspection...,
        durability: StoreDurability = .synchronous, location: SourceLocation = #_sourceLocation
    ) {
        let found = bad(hosts, durability)
        #expect(found.count == 1 && found.first?.state == state, "\(found)", sourceLocation: location)
        #expect(found.first?.text.contains(text) == true, "\(found)", sourceLocation: location)
        #expect(found.first?.advice.contains(advice) == true, "\(found)", sourceLocation: location)
    }

    @Test func `a primary with a standby is fine`() {
        let inspection = inspect([primary(), standby()])
        #expect(bad([primary(), standby()]) == [])
        let texts = inspection.findings.map(\.text)
        #expect(texts.contains("db1:5432 is the primary: PostgreSQL 15.18, timeline 3"))
        #expect(texts.contains("db2:5432 is a standby: PostgreSQL 15.18"))
        #expect(inspection.findings.allSatisfy { $0.advice.isEmpty })
        #expect(inspection.sealing == .init(keyRing: "0101010101010101", keyNumbers: [1]))
    }

    @Test func `a database that no server has used yet has no key ring`() {
        let unused = primary {
            $0.tables = .success(StoreRow(schemaVersion: Schema.version))
        }
        #expect(inspect([unused]).sealing == nil)
    }

    @Test func `a host that cannot be used is a warning beside a primary, and a problem without`() {
        let down = HostInspection(name: "db3:5432", outcome: .failure(.connection("connection refused")))
        expect(
            .warning, "db3:5432 is of no use: connection refused", advice: "runs there", of: primary(), standby(), down)
        let found = bad([down])
        #expect(found.map(\.state) == [.problem, .problem])
        #expect(found[1].text.contains("no host of store.url takes writes"))
        let refused = HostInspection(name: "db3:5432", outcome: .failure(.statement(.wrongPassword, "no")))
        expect(.warning, "SQLSTATE 28P01", advice: "check the password", of: primary(), refused)
    }

    @Test func `two primaries are a problem`() {
        let other = HostInspection(
            name: "db2:5432", outcome: .success(HostInspection.Answer(facts: facts("db2:5432"), role: "app")))
        expect(.problem, "db1:5432 and db2:5432 take writes", advice: "lower timeline", of: primary(), other)
    }

    @Test func `a standby that follows nobody is a warning`() {
        expect(
            .warning, "not connected to a primary", advice: "primary_conninfo", of: primary(),
            standby { $0.isFollowing = false })
    }

    @Test func `without a synchronous standby nothing can be stored, if that is asked for`() {
        let alone = primary { $0.standbys = [] }
        expect(.problem, "no standby is connected", advice: "attach a standby", of: alone)
        #expect(bad([alone], .local) == [])
        let asynchronous = primary { $0.standbys[0].isSynchronous = false }
        expect(.problem, "none of them is synchronous", advice: "synchronous_standby_names", of: asynchronous)
        #expect(bad([asynchronous], .local) == [])
    }

    @Test func `a role that may not see what standbys do is told who may`() {
        let blind = primary {
            $0.standbys = [HostInspection.Standby(name: "db2", isSynchronous: nil)]
        }
        #expect(bad([blind]) == [])
        #expect(inspect([blind]).findings.contains { $0.text.contains("pg_read_all_stats") })
    }

    @Test func `settings that lose tokens are problems with their remedies`() {
        let risky = primary { $0.facts.synchronousStandbyNames = "" }
        expect(.problem, "synchronous_standby_names is empty on db1:5432", advice: "name the standbys", of: risky)
        let unsafe = primary { $0.facts.fsync = "off" }
        expect(.problem, "fsync is off", advice: "set it to on", of: unsafe)
        expect(.warning, "fsync is off", advice: "set it to on", of: unsafe, durability: .local)
    }

    @Test func `clocks that differ by more than a second are a warning`() {
        #expect(bad([primary { $0.facts.clockDifference = -900_000 }]) == [])
        let late = primary { $0.facts.clockDifference = -61_260_000 }
        expect(.warning, "the clock of db1:5432 is 61.3 s behind this machine's", advice: "timedatectl", of: late)
    }

    @Test func `a superuser is too much for a server`() {
        expect(.warning, "app is a superuser", advice: "roles.sql", of: primary { $0.isSuperuser = true })
    }

    @Test func `a pooler is told of with the mode that it has to have`() {
        let pooled = primary { $0.facts.isPooled = true }
        #expect(bad([pooled]) == [])
        #expect(inspect([pooled]).findings.contains { $0.text.contains("its pool_mode has to be session") })
    }

    @Test func `tables that are missing, old or not for this role are problems with their remedies`() {
        expect(
            .problem, "has no tables of token-cache", advice: "token-cache migrate",
            of: primary { $0.tables = .failure(.missing(place: "the database tokens on db1:5432")) })
        expect(
            .problem, "has schema 1", advice: "run the version that made it",
            of: primary { $0.tables = .failure(.otherVersion(1)) })
        expect(
            .problem, "lacks privileges: DELETE on token", advice: "token-cache migrate --server-role app",
            of: primary { $0.tables = .failure(.privileges(role: "app", missing: ["DELETE on token"])) })
    }

    // MARK: - A real server

    private func inspected(_ database: TestDatabase, user: String = "postgres") -> StoreInspection {
        let options = PostgresOptions(
            url: database.url(user: user), password: { nil }, connections: 1, timeout: .seconds(30), requestLimit: 1,
            durability: .local)
        return DatabaseInspector(options).inspect()
    }

    @Test func `a server of the tests is looked at`() throws {
        let found = inspected(try TestDatabase()).findings
        #expect(found.contains { $0.state == .fine && $0.text.contains("is the primary: PostgreSQL ") })
        #expect(found.contains { $0.state == .fine && $0.text.contains("has schema \(Schema.version)") })
        #expect(found.contains { $0.state == .warning && $0.text.contains("postgres is a superuser") })
        #expect(found.contains { $0.state == .fine && $0.text.contains("agrees with this machine's") })
        #expect(!found.contains { $0.state == .problem }, "\(found)")
    }

    @Test func `a database without tables, and a role that is not there, are found`() throws {
        let database = try TestDatabase(isEmpty: true)
        #expect(inspected(database).findings.contains { $0.text.contains("has no tables of token-cache") })
        let refused = inspected(database, user: "nobody_of_ours").findings
        #expect(refused.first?.text.contains("SQLSTATE 28000") == true, "\(refused)")
        #expect(refused.contains { $0.text.contains("no host of store.url takes writes") })
    }
}
#endif
