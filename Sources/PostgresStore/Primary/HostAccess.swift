#if PostgreSQL
import System

/// What every search for the primary does with a host: connects to it, asks what it is, and refuses it if it must not be used.
struct HostAccess: Sendable {
    let options: PostgresOptions
    /// Records what the hosts say of themselves; nil if there is no store.
    let state: PostgresState?

    /// Connects to a host.
    ///
    /// - Parameters:
    ///   - index: Its place in the settings.
    ///   - patience: How long it may acknowledge nothing.
    ///   - lockTimeout: How long a statement may wait for a lock there.
    func connect(
        to index: Int, patience: Duration, lockTimeout: Duration, until deadline: MonotonicTime
    ) throws(PostgresError) -> (connection: BlockingConnection, facts: HostFacts) {
        let parameters = options.parameters(for: options.hosts[index], unanswered: patience)
        let connection = try BlockingConnection(parameters, until: deadline)
        let facts = try check(connection, of: index)
        try connection.configure(lockTimeout: lockTimeout)
        return (connection, facts)
    }

    /// Throws unless the host takes writes and is as durable as the settings demand.
    ///
    /// - Parameter index: Nil if it was asked before.
    @discardableResult
    func check(_ connection: BlockingConnection, of index: Int? = nil) throws(PostgresError) -> HostFacts {
        let facts = try HostFacts(of: connection)
        let rules = DurabilityRules(facts, options.durability)
        state?.note(facts, of: index, rules)
        if let refusal = facts.refusal(rules) { throw refusal }
        return facts
    }
}
#endif
