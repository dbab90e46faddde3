#if PostgreSQL
internal import TokenStore

/// What a host's settings mean for tokens that it has acknowledged.
struct DurabilityRules: Hashable, Sendable {
    /// Why the host must not be used, each a sentence that says what to do; empty if it may be.
    private(set) var refusals: [String] = []
    /// What operators should know of a host that is used nevertheless.
    private(set) var warnings: [String] = []

    init(_ facts: HostFacts, _ durability: StoreDurability) {
        judgeCommits(facts, durability)
        judgeFiles(facts, durability)
        if durability == .synchronous, facts.synchronousStandbyNames.isEmpty {
            refusals.append(
                """
                synchronous_standby_names is empty on \(facts.address), so what it acknowledges is on no second machine: name \
                the standbys in its postgresql.conf (with Patroni: synchronous_mode and synchronous_mode_strict), or set \
                store.durability: local
                """)
        }
    }

    private mutating func judgeCommits(_ facts: HostFacts, _ durability: StoreDurability) {
        let value = facts.synchronousCommit
        let places =
            "in postgresql.conf, or with ALTER ROLE or ALTER DATABASE for the server's role, which go before it"
        if value == "off" {
            add(
                """
                synchronous_commit is off on \(facts.address), so a crash loses tokens that were acknowledged: set it to on \
                \(places)
                """, durability)
        } else if durability == .synchronous, value == "local" {
            refusals.append(
                """
                synchronous_commit is local on \(facts.address), so a commit does not wait for the standby: set it to on \
                \(places), or set store.durability: local
                """)
        } else if durability == .synchronous, value == "remote_write" {
            warnings.append(
                """
                synchronous_commit is remote_write on \(facts.address), so an acknowledged token may be in the standby's memory \
                only, and is lost if both machines lose power: set it to on \(places)
                """)
        }
    }

    private mutating func judgeFiles(_ facts: HostFacts, _ durability: StoreDurability) {
        if facts.fsync == "off" {
            add(
                """
                fsync is off on \(facts.address), so a power cut loses acknowledged tokens or the whole database: set it to on in \
                postgresql.conf
                """, durability)
        }
        if facts.fullPageWrites == "off" {
            add(
                """
                full_page_writes is off on \(facts.address), so a power cut can leave pages of the database half written: set it \
                to on in postgresql.conf
                """, durability)
        }
    }

    /// What loses acknowledged tokens on one machine.
    private mutating func add(_ sentence: String, _ durability: StoreDurability) {
        switch durability {
        case .synchronous: refusals.append(sentence)
        case .local: warnings.append(sentence)
        }
    }
}
#endif
