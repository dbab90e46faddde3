#if PostgreSQL
internal import TokenStore

extension PostgresState {
    /// Takes notice of what a server that takes writes has told of itself, while it is used.
    ///
    /// - Parameter rules: What its settings mean for tokens that it has acknowledged.
    func note(_ facts: HostFacts, _ rules: DurabilityRules) {
        hosts.note(facts.address, facts.description)
        warn(facts, rules)
        refusedServers.note(
            ServerIdentity(facts), rules.refusals.isEmpty ? nil : rules.refusals.joined(separator: "; "))
    }

    /// Tells operators, once, what they should know of a host that is used.
    func warn(_ facts: HostFacts, _ rules: DurabilityRules) {
        if rules.refusals.isEmpty {
            for warning in rules.warnings where warnings.isNew(warning) { report(.own(StoreNotice(.warning, warning))) }
        }
        if facts.isClockOff, warnings.isNew("the clock of \(facts.address)") {
            report(.own(StoreNotice(.warning, "\(facts.clockDifferenceText): \(HostFacts.clockAdvice)")))
        }
    }
}

extension HostFacts {
    /// Clocks that differ by more are told of, in seconds: tokens and sessions live shorter or longer by as much.
    static let clockConcern = 1.0

    /// By how much the host's clock is ahead of this machine's, in seconds, for people.
    var clockDifferenceText: String {
        let seconds = Double(clockDifference) / 1e6
        let rounded = (abs(seconds) * 10).rounded() / 10
        return "the clock of \(address) is \(rounded) s \(seconds < 0 ? "behind" : "ahead of") this machine's"
    }

    /// Whether the clocks differ by more than they should.
    var isClockOff: Bool { abs(Double(clockDifference) / 1e6) > Self.clockConcern }

    static let clockAdvice = "check on both machines that timedatectl shows the clock as synchronized"
}
#endif
