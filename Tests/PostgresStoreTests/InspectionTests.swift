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
            fullPageWrites: "on", clockDifference: 4_000)
    }

    private func primary(
        _ change: (inout HostInspection) -> Void = { _ in }, facts changeFacts: (inout HostFacts) -> Void = { _ in }
    ) -> HostInspection {
        var facts = facts()
        changeFacts(&facts)
        var host = HostInspection(name: "db1:5432", facts: .success(facts))
        host.tables = .success(
            StoreRow(
                schemaVersion: Schema.version, keyRing: [UInt8](repeating: 1, count: 32), sealingKey: 1,
                fingerprints: [1: "a"]))
        change(&host)
        return host
    }

    private var standby: HostInspection {
        HostInspection(name: "db2:5432", facts: .success(facts("db2:5432", isStandby: true)))
    }

    private func inspect(
        _ hosts: [HostInspection], _ durability: StoreDurability = .synchronous
    ) -> StoreInspection {
        StoreInspection(hosts, durability)
    }

    private func bad(_ hosts: [HostInspection], _ durability: StoreDurability = .synchronous) -> [Finding] {
        inspect(hosts, durability).findings.filter { $0.state != .ok }
    }

    /// Expects one finding that is not fine.
    private func expect(
        _ state: Finding.State, _ text: String, advice: String, of hosts: HostInspection...,
        durability: StoreDurability = .synchronous, location: SourceLocation = #_sourceLocation
    ) {
        let found = bad(hosts, durability)
        #expect(found.count == 1 && found.first?.state == state, "\(found)", sourceLocation: location)
        #expect(found.first?.text.contains(text) == true, "\(found)", sourceLocation: location)
        #expect(found.first?.advice.contains(advice) == true, "\(found)", sourceLocation: location)
    }

    @Test func `a primary with a standby is fine`() {
        let inspection = inspect([primary(), standby])
        #expect(bad([primary(), standby]) == [])
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
        let down = HostInspection(name: "db3:5432", facts: .failure(.connection("connection refused")))
        expect(
            .warning, "db3:5432 is of no use: connection refused", advice: "runs there", of: primary(), standby, down)
        let found = bad([down])
        #expect(found.map(\.state) == [.problem, .problem])
        #expect(found[1].text.contains("no host of store.url takes writes"))
        let refused = HostInspection(name: "db3:5432", facts: .failure(.statement(.wrongPassword, "no")))
        expect(.warning, "SQLSTATE 28P01", advice: "check the password", of: primary(), refused)
    }

    @Test func `two primaries are a problem`() {
        let other = HostInspection(name: "db2:5432", facts: .success(facts("db2:5432")))
        expect(.problem, "db1:5432 and db2:5432 take writes", advice: "lower timeline", of: primary(), other)
    }

    @Test func `commits that do not return are a problem`() {
        for durability in [StoreDurability.synchronous, .local] {
            expect(
                .problem, "no standby acknowledges the commits on db1:5432", advice: "attach a standby",
                of: primary { $0.commitError = .timedOut("it has not answered") }, durability: durability)
        }
    }

    @Test func `settings that lose tokens are problems with their remedies`() {
        let risky = primary(facts: { $0.synchronousStandbyNames = "" })
        expect(.problem, "synchronous_standby_names is empty on db1:5432", advice: "name the standbys", of: risky)
        let unsafe = primary(facts: { $0.fsync = "off" })
        expect(.problem, "fsync is off", advice: "set it to on", of: unsafe)
        expect(.warning, "fsync is off", advice: "set it to on", of: unsafe, durability: .local)
    }

    @Test func `clocks that differ by more than a second are a warning`() {
        #expect(bad([primary(facts: { $0.clockDifference = -900_000 })]) == [])
        let late = primary(facts: { $0.clockDifference = -61_260_000 })
        expect(.warning, "the clock of db1:5432 is 61.3 s behind this machine's", advice: "timedatectl", of: late)
    }

    @Test func `tables that cannot be used are a problem with its remedy`() {
        expect(
            .problem, "the database tokens has no tables", advice: "make them",
            of: primary { $0.tables = .failure(.unexpected("the database tokens has no tables", advice: "make them")) })
    }

    @Test func `a server of the tests is looked at`() throws {
        let found = DatabaseInspector(options: try TestDatabase().options()).inspect().findings
        #expect(found.contains { $0.state == .ok && $0.text.contains("is the primary: PostgreSQL ") })
        #expect(found.contains { $0.state == .ok && $0.text.contains("has schema \(Schema.version)") })
        #expect(found.contains { $0.state == .ok && $0.text.hasPrefix("commits return on ") })
        #expect(found.contains { $0.state == .ok && $0.text.contains("agrees with this machine's") })
        #expect(!found.contains { $0.state == .problem }, "\(found)")
    }
}
#endif
