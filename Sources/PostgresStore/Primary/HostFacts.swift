#if PostgreSQL
import System
import TokenStore

/// What a host has said of itself at one moment: its role, and how durably it keeps what it acknowledges.
struct HostFacts: Sendable, Hashable {
    /// The host and the port of the connection.
    var address: String
    /// For example `15.18`.
    var version: String
    /// Whether the host is a standby, which takes no writes.
    var isInRecovery: Bool
    /// Whether transactions are read-only by a setting.
    var isReadOnly: Bool
    /// A number that grows with each promotion; nil on a standby.
    var timeline: Int64?
    var synchronousCommit: String
    var synchronousStandbyNames: String
    var fsync: String
    var fullPageWrites: String
    /// By how many microseconds the host's clock is ahead of this machine's, exact to half a round trip.
    var clockDifference: Int64
    /// Whether the connection uses TLS.
    var usesTLS = false
    /// Whether a subscriber of logical replication confirms commits.
    var hasFalseStandby = false

    var isWritable: Bool { !isInRecovery && !isReadOnly }

    /// For example `PostgreSQL 15.18`.
    var software: String { "PostgreSQL \(version)" }

    /// For people, such as `PostgreSQL 15.18 at db1:5432 (timeline 1)`.
    var description: String { "\(software) at \(address)\(timeline.map { " (timeline \($0))" } ?? "")" }
}

extension HostFacts {
    /// Asks a server, in one round trip.
    init(of connection: BlockingConnection) throws(PostgresError) {
        let postgres = connection.postgres
        let (begin, beginning) = (UTCTime.microseconds(), MonotonicTime.now)
        // The timeline of the present WAL position: that of the last checkpoint changes only some time after a promotion.
        let result = try connection.run(
            """
            SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only'),
                CASE WHEN pg_is_in_recovery() THEN NULL ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END,
                current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
                current_setting('fsync'), current_setting('full_page_writes'),
                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \(Statement.hasFalseStandby)
            """)
        guard result.rowCount == 1 else { throw .unexpected("\(postgres.address) does not say what it is") }
        let roundTrip = Int64((MonotonicTime.now - beginning).count / 1_000)
        self.init(
            address: postgres.address, version: String(result.text(0, 0).prefix { $0 != " " }),
            isInRecovery: result.integer(0, 1) != 0, isReadOnly: result.text(0, 2) == "on",
            timeline: result.isNull(0, 3) ? nil : Int64(result.text(0, 3), radix: 16),
            synchronousCommit: result.text(0, 4), synchronousStandbyNames: result.text(0, 5),
            fsync: result.text(0, 6), fullPageWrites: result.text(0, 7),
            clockDifference: result.integer(0, 8) - begin - roundTrip / 2, usesTLS: postgres.usesTLS,
            hasFalseStandby: result.integer(0, 9) != 0)
    }

    /// Why the host is not used; nil if it is.
    func refusal(_ rules: DurabilityRules) -> PostgresError? {
        if isInRecovery { return .isStandby }
        if isReadOnly {
            let text = "it takes no writes, as default_transaction_read_only is on there or for the role of this server"
            return .statement(.readOnly, text)
        }
        return rules.refusal.map { .unexpected($0) }
    }

    /// Why the tables of this version cannot be made there; nil if they can.
    var versionFault: PostgresError? {
        let major = Int(version.prefix(while: \.isNumber)) ?? 0
        return major < 14 ? .unexpected("\(software) runs at \(address)", advice: "upgrade it to 14 or later") : nil
    }

    /// Whether the clocks differ by more than a second: tokens and sessions then live shorter or longer by as much.
    var isClockOff: Bool { clockDifference.magnitude > 1_000_000 }

    /// How the clocks differ, for people.
    var clockDifferenceText: String {
        let seconds = Double(clockDifference) / 1e6
        let rounded = (abs(seconds) * 10).rounded() / 10
        return "the clock of \(address) is \(rounded) s \(seconds < 0 ? "behind" : "ahead of") this machine's"
    }

    /// Whether fewer than half of the named standbys must confirm a commit: without parentheses, one of them.
    fileprivate var hasSmallQuorum: Bool {
        let parts = synchronousStandbyNames.split(separator: "(")
        let needed = parts.count > 1 ? Int(parts[0].filter(\.isNumber)) : nil
        return 2 * (needed ?? 1) < synchronousStandbyNames.count { $0 == "," } + 1
    }

    static let clockAdvice = "check on both machines that timedatectl shows the clock as synchronized"
}

extension PostgresError {
    /// Why a standby is not used.
    ///
    /// Only this error says for certain that a host is not the primary: one that refuses connections may be a later primary that is
    /// being restarted.
    static let isStandby = PostgresError.statement(.readOnly, "it is a standby")
    /// Why a host is not used that takes writes, but whose commits do not return: its standbys are down, or follow another server.
    static let isUnproven = PostgresError.unexpected("its commits wait for a standby (see pg_stat_replication there)")
}

/// What a host's settings mean for the tokens that it acknowledges.
struct DurabilityRules: Hashable, Sendable {
    /// Why the host must not be used; empty if it may be.
    private(set) var refusals: [PostgresError] = []
    /// Warnings about a host that may be used.
    private(set) var warnings: [PostgresError] = []

    /// All refusals in one text; nil if the host may be used.
    var refusal: String? { refusals.isEmpty ? nil : refusals.map(\.text).joined(separator: "; ") }

    init(_ facts: HostFacts, _ durability: StoreDurability) {
        let (host, isSynchronous) = (facts.address, durability == .synchronous)
        let places =
            "in postgresql.conf, or with ALTER ROLE or ALTER DATABASE for the server's role, which go before it"
        // With durability local, these are only warnings: the operator decides what a crash may lose.
        judge(
            facts.synchronousCommit == "off", isRefused: isSynchronous,
            "synchronous_commit is off on \(host), so a crash loses tokens that were acknowledged",
            "set it to on \(places)")
        judge(
            facts.fsync == "off", isRefused: isSynchronous,
            "fsync is off on \(host), so a power cut loses acknowledged tokens or the whole database",
            "set it to on in postgresql.conf")
        judge(
            facts.fullPageWrites == "off", isRefused: isSynchronous,
            "full_page_writes is off on \(host), so a power cut can leave pages of the database half written",
            "set it to on in postgresql.conf")
        guard isSynchronous else { return }
        judge(
            facts.synchronousStandbyNames.isEmpty,
            "synchronous_standby_names is empty on \(host), so what it acknowledges is on no second machine",
            """
            name the standbys in its postgresql.conf (with Patroni: synchronous_mode and synchronous_mode_strict), or set \
            store.durability: local
            """)
        // See Fence.
        judge(
            facts.hasSmallQuorum,
            """
            synchronous_standby_names on \(host) has fewer than half of its standbys confirm a commit, so a former primary could \
            answer with old tokens
            """, "have at least half of them confirm")
        judge(
            facts.hasFalseStandby,
            """
            synchronous_standby_names has * on \(host), so a subscriber of logical replication confirms commits, of which it may \
            keep nothing
            """, "name the standbys instead")
        judge(
            facts.synchronousCommit == "local",
            "synchronous_commit is local on \(host), so a commit does not wait for the standby",
            "set it to on \(places), or set store.durability: local")
        judge(
            facts.synchronousCommit == "remote_write", isRefused: false,
            """
            synchronous_commit is remote_write on \(host), so an acknowledged token may be in the standby's memory only, and is \
            lost if both machines lose power
            """, "set it to on \(places)")
    }

    private mutating func judge(_ isSo: Bool, isRefused: Bool = true, _ text: String, _ advice: String) {
        guard isSo else { return }
        let error = PostgresError.unexpected(text, advice: advice)
        if isRefused { refusals.append(error) } else { warnings.append(error) }
    }
}
#endif
