#if PostgreSQL
internal import Glibc
internal import System

/// What a host of the database is, and how it keeps what it acknowledges; as of one moment.
struct HostFacts: Sendable, Hashable {
    /// The host and its port, as the connection has them.
    var address: String
    var engine: PostgresEngine
    /// For people, for example `15.18` or `v24.1.3`.
    var version: String
    /// Whether it follows another server, and so takes no writes.
    var isInRecovery: Bool
    /// Whether transactions are read-only by a setting.
    var isReadOnly: Bool
    /// Grows with each promotion; nil on standbys and on engines without it.
    var timeline: Int64?
    /// nil where the engine has no such setting.
    var synchronousCommit: String?
    var synchronousStandbyNames: String?
    var fsync: String?
    var fullPageWrites: String?
    /// By how much the host's clock is ahead of this machine's, in microseconds; wrong by half a round trip at most.
    var clockDifference: Int64
    /// Whether another program passes statements on: the process that answers is not the one that the connection was made
    /// to.
    ///
    /// Always false where that cannot be told.
    var isPooled: Bool
    /// Whether the connection uses TLS.
    var usesTLS = false

    var isWritable: Bool { !isInRecovery && !isReadOnly }

    /// For example `PostgreSQL 15.18`.
    var software: String { engine == .other ? version : "\(engine.rawValue) \(version)" }

    /// For the list of hosts.
    var description: KnownHosts.Description {
        KnownHosts.Description(
            engine: engine == .other ? "" : engine.rawValue, version: version, timeline: timeline ?? 0,
            clockDifference: clockDifference, usesTLS: usesTLS)
    }

    /// Asks a server, in one round trip.
    ///
    /// - Parameter deadline: When the answer must be there.
    init(of session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) {
        // What CockroachDB has reported by itself while connecting.
        let isCockroach = session.connection.status("crdb_version") != nil
        do throws(PostgresError) {
            try self.init(of: session, isCockroach ? .cockroach : .postgresql, until: deadline)
        } catch {
            guard error.state != nil, !error.endsConnection, !isCockroach else { throw error }
            // An engine that lacks the functions of PostgreSQL's log, as Aurora does.
            try self.init(of: session, .fork, until: deadline)
        }
    }

    /// What may be asked of a server.
    private enum Dialect {
        case postgresql
        /// Without what programs with another storage below lack.
        case fork
        case cockroach

        var question: String {
            let isInRecovery = self == .cockroach ? "false" : "pg_is_in_recovery()"
            // Where the log is written, rather than the last checkpoint: that comes some time after a promotion.
            let timeline =
                self == .postgresql
                ? "CASE WHEN pg_is_in_recovery() THEN NULL ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
                : "NULL::text"
            let signs =
                self == .cockroach
                ? "NULL::text"
                : """
                concat_ws(',',
                    (SELECT 'citus' FROM pg_extension WHERE extname = 'citus'),
                    (SELECT min(proname::text) FROM pg_proc WHERE proname = 'aurora_version'),
                    (SELECT min(split_part(name, '.', 1)) FROM pg_settings WHERE name LIKE 'alloydb.%' OR name LIKE 'neon.%'))
                """
            return """
                SELECT version(), \(isInRecovery), current_setting('transaction_read_only'), \(timeline),
                    current_setting('synchronous_commit', true), current_setting('synchronous_standby_names', true),
                    current_setting('fsync', true), current_setting('full_page_writes', true),
                    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_backend_pid(), \(signs)
                """
        }
    }

    private init(
        of session: BlockingSession, _ dialect: Dialect, until deadline: MonotonicTime
    ) throws(PostgresError) {
        let connection = session.connection
        let (begin, beginning) = (Self.microseconds, MonotonicTime.now)
        self = try session.run(dialect.question, until: deadline) { (result) throws(PostgresError) in
            guard result.rowCount == 1 else { throw .unexpected("\(connection.address) does not say what it is") }
            let roundTrip = Int64((MonotonicTime.now - beginning).count / 1_000)
            let version = result.text(0, 0)
            let signs = Set((result.optionalText(0, 10) ?? "").split(separator: ",").map(String.init))
            return HostFacts(
                address: connection.address, engine: PostgresEngine(version: version, signs: signs),
                version: Self.number(in: version), isInRecovery: result.integer(0, 1) != 0,
                isReadOnly: result.text(0, 2) == "on",
                timeline: result.optionalText(0, 3).flatMap { Int64($0, radix: 16) },
                synchronousCommit: result.optionalText(0, 4), synchronousStandbyNames: result.optionalText(0, 5),
                fsync: result.optionalText(0, 6), fullPageWrites: result.optionalText(0, 7),
                clockDifference: result.integer(0, 8) - begin - roundTrip / 2,
                isPooled: dialect == .postgresql && result.integer(0, 9) != Int64(connection.processID),
                usesTLS: connection.usesTLS)
        }
    }

    init(
        address: String, engine: PostgresEngine, version: String, isInRecovery: Bool, isReadOnly: Bool,
        timeline: Int64?, synchronousCommit: String?, synchronousStandbyNames: String?, fsync: String?,
        fullPageWrites: String?, clockDifference: Int64, isPooled: Bool, usesTLS: Bool = false
    ) {
        self.address = address
        self.engine = engine
        self.version = version
        self.isInRecovery = isInRecovery
        self.isReadOnly = isReadOnly
        self.timeline = timeline
        self.synchronousCommit = synchronousCommit
        self.synchronousStandbyNames = synchronousStandbyNames
        self.fsync = fsync
        self.fullPageWrites = fullPageWrites
        self.clockDifference = clockDifference
        self.isPooled = isPooled
        self.usesTLS = usesTLS
    }

    /// The first word with a digit in what `version()` gives, such as `PostgreSQL 15.18 on x86_64-pc-linux-gnu, ...` and
    /// `CockroachDB CCL v24.1.3 (x86_64...`; the whole, if it has none.
    static func number(in version: String) -> String {
        version.split(separator: " ").first { $0.contains { ("0"..."9").contains($0) } }.map(String.init) ?? version
    }

    private static var microseconds: Int64 {
        var time = timespec()
        _ = unsafe clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1_000
    }
}
#endif
