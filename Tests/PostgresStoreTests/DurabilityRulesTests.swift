#if PostgreSQL
import Testing
import TokenStore

@testable import PostgresStore

@Suite struct DurabilityRulesTests {
    /// A setting, its value, and whether it is refused, warned of or accepted: durability synchronous and local.
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

    @Test(arguments: [
        Case(setting: "synchronous_commit", value: "on", synchronous: .accepted, local: .accepted),
        Case(setting: "synchronous_commit", value: "remote_apply", synchronous: .accepted, local: .accepted),
        Case(setting: "synchronous_commit", value: "remote_write", synchronous: .warned, local: .accepted),
        Case(setting: "synchronous_commit", value: "local", synchronous: .refused, local: .accepted),
        Case(setting: "synchronous_commit", value: "off", synchronous: .refused, local: .warned),
        Case(setting: "synchronous_standby_names", value: "", synchronous: .refused, local: .accepted),
        Case(setting: "synchronous_standby_names", value: "*", synchronous: .accepted, local: .accepted),
        Case(setting: "fsync", value: "off", synchronous: .refused, local: .warned),
        Case(setting: "full_page_writes", value: "off", synchronous: .refused, local: .warned),
    ])
    func `what would lose acknowledged tokens is refused or warned of`(_ example: Case) throws {
        var facts = HostFactsTests.facts()
        switch example.setting {
        case "synchronous_commit": facts.synchronousCommit = example.value
        case "synchronous_standby_names": facts.synchronousStandbyNames = example.value
        case "fsync": facts.fsync = example.value
        default: facts.fullPageWrites = example.value
        }
        for (durability, verdict) in [(StoreDurability.synchronous, example.synchronous), (.local, example.local)] {
            let rules = DurabilityRules(facts, durability)
            #expect(rules.refusals.count == (verdict == .refused ? 1 : 0))
            #expect(rules.warnings.count == (verdict == .warned ? 1 : 0))
            for sentence in rules.refusals + rules.warnings {
                // The setting, the host and what to do.
                #expect(sentence.hasPrefix("\(example.setting) is "))
                #expect(sentence.contains(" on db1:5432, so "))
                #expect(sentence.contains(": set it to on ") || sentence.contains(": name the standbys "))
            }
        }
    }
}
#endif
