#if PostgreSQL
import Testing
import TokenStore

@testable import PostgresStore

@Suite struct DurabilityRulesTests {
    /// A setting, its value, and the verdicts with durability synchronous and with local.
    struct Case: Sendable, CustomStringConvertible {
        var setting: String
        var value: String
        var synchronous: Verdict
        var local: Verdict

        var description: String { "\(setting)=\(value)" }
    }

    enum Verdict {
        case refused, warned, accepted
    }

    /// The facts of a host on which nothing is wrong.
    private static let facts = HostFacts(
        address: "db1:5432", version: "15.18", isInRecovery: false, isReadOnly: false, timeline: 1,
        synchronousCommit: "on", synchronousStandbyNames: "ANY 1 (db2, db3)", fsync: "on", fullPageWrites: "on",
        clockDifference: 0)

    @Test func `a host tells a role without privileges of itself, and the settings of the database count`() throws {
        let database = try TestDatabase()
        let role = "\(database.name)_nobody"
        try database.sql("CREATE ROLE \(role) LOGIN")
        let plain = try HostFacts(of: database.connection(user: role))
        #expect(plain.isWritable && plain.timeline == 1 && plain.fsync == "on" && plain.fullPageWrites == "on")
        #expect(plain.synchronousCommit == "on" && plain.synchronousStandbyNames == "")
        #expect(plain.versionFault == nil)
        var old = plain
        old.version = "13.23"
        #expect(old.versionFault?.text.hasPrefix("PostgreSQL 13.23 runs at ") == true)
        // Both clocks are that of this machine.
        #expect(abs(plain.clockDifference) < 10_000_000)
        try database.sql(
            "ALTER DATABASE \(database.name) SET default_transaction_read_only = on",
            "ALTER DATABASE \(database.name) SET synchronous_commit = off")
        let set = try HostFacts(of: database.connection())
        #expect(!set.isWritable && !set.isInRecovery && set.synchronousCommit == "off")
    }

    @Test(arguments: [
        Case(setting: "synchronous_commit", value: "on", synchronous: .accepted, local: .accepted),
        Case(setting: "synchronous_commit", value: "remote_apply", synchronous: .accepted, local: .accepted),
        Case(setting: "synchronous_commit", value: "remote_write", synchronous: .warned, local: .accepted),
        Case(setting: "synchronous_commit", value: "local", synchronous: .refused, local: .accepted),
        Case(setting: "synchronous_commit", value: "off", synchronous: .refused, local: .warned),
        Case(setting: "synchronous_standby_names", value: "", synchronous: .refused, local: .accepted),
        Case(setting: "synchronous_standby_names", value: "*", synchronous: .accepted, local: .accepted),
        Case(setting: "synchronous_standby_names", value: "a, \"b 2\"", synchronous: .accepted, local: .accepted),
        Case(setting: "synchronous_standby_names", value: "a, b, c", synchronous: .refused, local: .accepted),
        Case(setting: "synchronous_standby_names", value: "2(a,b,c)", synchronous: .accepted, local: .accepted),
        Case(setting: "synchronous_standby_names", value: "any 1 (a,b,c)", synchronous: .refused, local: .accepted),
        Case(setting: "synchronous_standby_names", value: "2 (a, b, c, d)", synchronous: .accepted, local: .accepted),
        Case(setting: "subscriber", value: "*", synchronous: .refused, local: .accepted),
        Case(setting: "fsync", value: "off", synchronous: .refused, local: .warned),
        Case(setting: "full_page_writes", value: "off", synchronous: .refused, local: .warned),
    ])
    func `what would lose acknowledged tokens is refused or warned of`(_ example: Case) throws {
        var facts = Self.facts
        switch example.setting {
        case "synchronous_commit": facts.synchronousCommit = example.value
        case "synchronous_standby_names": facts.synchronousStandbyNames = example.value
        case "fsync": facts.fsync = example.value
        case "subscriber": facts.hasFalseStandby = true
        default: facts.fullPageWrites = example.value
        }
        for (durability, verdict) in [(StoreDurability.synchronous, example.synchronous), (.local, example.local)] {
            let rules = DurabilityRules(facts, durability)
            #expect(rules.refusals.count == (verdict == .refused ? 1 : 0))
            #expect(rules.warnings.count == (verdict == .warned ? 1 : 0))
            for sentence in (rules.refusals + rules.warnings).map(\.text) {
                // Each names the setting and the host, and says what to do.
                let setting = example.setting == "subscriber" ? "synchronous_standby_names" : example.setting
                #expect(sentence.hasPrefix("\(setting) "))
                #expect(sentence.contains(" on db1:5432") && sentence.contains(", so "))
                let advice = [": set it to on ", ": name the standbys ", ": have at least half "]
                #expect(advice.contains { sentence.contains($0) })
            }
        }
    }
}
#endif
