#if PostgreSQL
/// The statements that handles send, each of which a connection prepares once, under its name.
///
/// They find tokens by their primary key, and the few sessions of a user by an index. None uses the clock of the database.
///
/// A write never replaces a later version. It does replace its own: its first attempt may have been committed without the standby,
/// and a commit waits for the standby only if it has changed something. A removed token stays as a row without a value, so that a
/// delayed write of an earlier version does not bring it back.
///
/// An erasure and a transaction that overlaps it wait for each other:
/// - a login, because both lock the user (`lockUser`): the erasure could not see the uncommitted row of the session;
/// - the first write of a token, because both insert the same row;
/// - a write that depends on a session, because it locks the session's row, which the erasure deletes. The lock is of the weakest
///   kind (KEY SHARE), so such writes do not wait for one another.
///
/// A read that depends on a session locks nothing: one statement sees the token and the session as they were at one time.
///
/// A read fails on a standby, to which a pooler may have sent it.
enum Statement: String, CaseIterable {
    case fetch
    case fetchAll
    case storeAll
    case storeIf
    /// Replaces or removes an existing token.
    case update
    case examine
    case findSession
    case lockUser
    case createSession
    /// Ends all sessions of a user but a number of the latest.
    case trimSessions
    case noteUse
    case endSession
    case listSessions
    case eraseToken
    /// Proves that the server is the primary; see Fence.
    case fence
    /// Returns whether a commit that was answered just before is on a standby; sent with it.
    case confirm

    /// The name under which it is prepared.
    var name: String { "token_cache_\(rawValue)" }

    /// A condition: the row has a value, and has not expired.
    ///
    /// - Parameters:
    ///   - written: The number of the parameter with the earliest time of writing that has not expired.
    ///   - expired: The same for the expiration time of the token.
    private static func isLive(_ written: Int, _ expired: Int) -> String {
        """
        (token.value IS NOT NULL AND token.written_at >= $\(written)::bigint \
        AND (token.expires_at IS NULL OR token.expires_at >= $\(expired)::bigint))
        """
    }

    /// The key number in the row of a removed token.
    static let tombstoneKeyNumber: Int64 = -1
    /// The key number in the row of an erased user.
    static let erasedKeyNumber: Int64 = -2

    /// The key number in a row that did not open when its key was retired: the row stays, and a server that does not know yet that
    /// the key was retired cannot write into it with that key.
    ///
    /// - Parameter key: The number of the key.
    static func damagedKeyNumber(_ key: Int) -> Int { -1_000 - key }

    /// The columns that a read needs.
    ///
    /// - Parameter limit: The number of the parameter with the most bytes that a value may have.
    private static func found(_ limit: Int) -> String {
        """
        version, written_at, expires_at, key_number, CASE WHEN octet_length(value) <= $\(limit)::bigint THEN value END \
        AS value
        """
    }

    /// A condition, which fails on a standby.
    ///
    /// As a subquery it is evaluated once, even if no row is found.
    static let onPrimary = "(SELECT pg_current_wal_lsn()) IS NOT NULL"

    /// In the order in which `StoredToken` reads them.
    static let columns = "key, version, written_at, expires_at, key_number, value"
    private static let contents = "$2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bytea"
    private static let assignments = """
        version = excluded.version, written_at = excluded.written_at, expires_at = excluded.expires_at, \
        key_number = excluded.key_number, value = excluded.value
        """
    /// A condition: the session that the request depends on exists, if it depends on one.
    ///
    /// - Parameters:
    ///   - key: The session's key, or NULL.
    ///   - now: The number of the parameter with the time.
    ///   - rest: What follows the conditions of the search for the session, such as a lock.
    private static func hasSession(_ key: String, _ now: Int, _ rest: String = "") -> String {
        """
        (\(key) IS NULL OR EXISTS (SELECT 1 FROM session WHERE session.key = \(key) \
        AND session.expires_at > $\(now)::bigint \(rest)))
        """
    }
    private static let hasLockedSession = hasSession("$11::bytea", 12, "FOR KEY SHARE")
    /// Whether the row is as the request demands; `WriteCondition.Match.parameters` gives the numbers of the kinds.
    private static let matches = """
        CASE WHEN \(isLive(9, 10)) THEN $7::bigint IN (0, 1) \
        OR ($7::bigint = 3 AND token.version = ANY ($8::bigint[])) \
        OR ($7::bigint = 4 AND token.version <> ALL ($8::bigint[])) \
        OR ($7::bigint = 5 AND token.written_at < $3::bigint) ELSE $7::bigint IN (0, 2, 4, 5) END
        """
    /// A condition: a subscriber of logical replication acknowledges commits, of which it may keep nothing.
    static let hasFalseStandby = """
        (current_setting('synchronous_standby_names') LIKE '%*%' \
        AND EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'logical' AND active))
        """
    /// In the order in which `SessionRow` reads them.
    static let sessionColumns = """
        key, id, user_key, key_number, created_at, expires_at, used_at, number, user_value
        """

    var sql: String {
        switch self {
        case .fetch:
            """
            SELECT \(Self.found(2)), \(Self.hasSession("$3::bytea", 4)) \
            FROM (SELECT 1) AS one LEFT JOIN token ON key = $1::bytea AND value IS NOT NULL WHERE \(Self.onPrimary)
            """
        case .fetchAll:
            // LIMIT and OFFSET make the planner search the index once for each key. Without them, a plan made when the table was small
            // would read the whole table when it is large.
            """
            SELECT found.*, \(Self.hasSession("wanted.session", 5, "OFFSET 0")), wanted.mark \
            FROM unnest($1::bytea[], $2::bigint[], $3::bytea[]) AS wanted (key, mark, session) LEFT JOIN LATERAL \
            (SELECT \(Self.found(4)) FROM token WHERE token.key = wanted.key AND value IS NOT NULL LIMIT 1) AS found ON true \
            WHERE \(Self.onPrimary)
            """
        case .storeAll:
            """
            INSERT INTO token (\(Self.columns)) SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], \
            $5::bigint[], $6::bytea[]) ON CONFLICT (key) DO UPDATE SET \(Self.assignments) \
            WHERE token.version <= excluded.version RETURNING version
            """
        case .storeIf:
            """
            INSERT INTO token (\(Self.columns)) SELECT $1::bytea, \(Self.contents) WHERE \(Self.hasLockedSession) \
            ON CONFLICT (key) DO UPDATE SET \(Self.assignments) \
            WHERE token.version = excluded.version OR (token.version < excluded.version AND \(Self.matches))
            """
        case .update:
            """
            UPDATE token SET (version, written_at, expires_at, key_number, value) = ROW (\(Self.contents)) \
            WHERE token.key = $1::bytea AND \(Self.hasLockedSession) AND (token.version = $2::bigint \
            OR (token.version < $2::bigint AND \(Self.isLive(9, 10)) AND \(Self.matches)))
            """
        case .examine:
            """
            SELECT token.version, \(Self.isLive(2, 3)), \(Self.hasSession("$4::bytea", 5)), \
            token.key_number = \(Self.erasedKeyNumber), token.written_at \
            FROM (SELECT 1) AS one LEFT JOIN token ON token.key = $1::bytea WHERE \(Self.onPrimary)
            """
        case .findSession:
            """
            SELECT \(Self.sessionColumns) FROM session WHERE key = $1::bytea AND expires_at > $2::bigint \
            AND \(Self.onPrimary)
            """
        case .lockUser: "SELECT pg_advisory_xact_lock(hashtextextended(encode($1::bytea, 'hex'), 0))"
        case .createSession:
            // The clock of a server that has made an earlier session may be ahead. `lockUser` comes first, so nobody else makes one.
            """
            INSERT INTO session (\(Self.sessionColumns)) VALUES ($1::bytea, $2::bytea, $3::bytea, $4::bigint, $5::bigint, \
            $6::bigint, $7::bigint, greatest($8::bigint, (SELECT max(number) + 1 FROM session WHERE user_key = $3::bytea)), \
            $9::bytea) ON CONFLICT (key) DO UPDATE SET number = excluded.number
            """
        case .trimSessions:
            """
            DELETE FROM session WHERE user_key = $1::bytea AND key NOT IN (SELECT kept.key FROM session AS kept \
            WHERE kept.user_key = $1::bytea ORDER BY kept.number DESC LIMIT $2::bigint)
            """
        case .noteUse:
            // If the row is locked, another request notes a use, ends the session, or seals it with another key (`keyring
            // rotate`). In the last case this use is lost.
            """
            UPDATE session SET used_at = $2::bigint WHERE key = (SELECT used.key FROM session AS used \
            WHERE used.key = $1::bytea AND used.used_at < $2::bigint FOR NO KEY UPDATE SKIP LOCKED)
            """
        case .endSession: "DELETE FROM session WHERE id = $1::bytea RETURNING \(Self.sessionColumns)"
        case .listSessions:
            """
            SELECT \(Self.sessionColumns) FROM session WHERE user_key = $1::bytea AND expires_at > $2::bigint \
            AND \(Self.onPrimary) ORDER BY number
            """
        case .fence:
            // A message in the write-ahead log that nobody reads: a commit that has written nothing would not wait for standbys.
            "SELECT pg_logical_emit_message(true, 'token-cache', '')"
        case .confirm:
            // When the names are emptied, PostgreSQL ends the waits of commits without a warning.
            """
            SELECT current_setting('synchronous_standby_names') <> '' \
            AND current_setting('synchronous_commit') NOT IN ('off', 'local') \
            AND NOT \(Self.hasFalseStandby) AND \(Self.onPrimary)
            """
        case .eraseToken:
            // No token has an `expires_at` of 0: here it says that there was a token, also if an earlier attempt has erased it.
            """
            INSERT INTO token (\(Self.columns)) \
            VALUES ($1::bytea, $2::bigint, $3::bigint, NULL, \(Self.erasedKeyNumber), NULL) \
            ON CONFLICT (key) DO UPDATE SET version = greatest(token.version + 1, excluded.version), \
            written_at = excluded.written_at, expires_at = CASE WHEN token.value IS NOT NULL THEN 0 \
            WHEN token.key_number = excluded.key_number AND token.version >= excluded.version THEN token.expires_at END, \
            key_number = excluded.key_number, value = NULL RETURNING version, expires_at IS NOT NULL
            """
        }
    }
}
#endif
