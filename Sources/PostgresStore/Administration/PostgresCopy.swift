#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// A session with the primary for one long transaction, and what a copy asks there.
///
/// Used by one thread.
private struct CopySession {
    let session: BlockingSession

    /// How long the primary is looked for, and how long a statement may take.
    private static let (searchTime, statementTime) = (Duration.seconds(30), Duration.seconds(3_600))

    init(_ target: ConnectionTarget, _ durability: StoreDurability) throws(StoreOpenError) {
        do throws(PostgresError) {
            session = try PrimarySessions(target, durability).connect(until: .now + Nanoseconds(Self.searchTime))
        } catch {
            throw StoreOpenError(error)
        }
    }

    var deadline: MonotonicTime { .now + Nanoseconds(Self.statementTime) }

    func run(_ sql: String, _ parameters: Parameters = Parameters()) throws(PostgresError) {
        try session.run(sql, parameters, until: deadline)
    }

    /// An integer or a boolean; nil for NULL, and without a row.
    func integer(_ sql: String) throws(PostgresError) -> Int64? {
        try session.run(sql, until: deadline) { (result) throws(PostgresError) in
            result.rowCount == 0 ? nil : result.optionalInteger(0, 0)
        }
    }

    func opening<Value>(_ body: () throws(PostgresError) -> Value) throws(StoreOpenError) -> Value {
        do throws(PostgresError) {
            return try body()
        } catch {
            throw StoreOpenError(error)
        }
    }
}

/// Reads all rows of a store on PostgreSQL as of one moment, while servers go on using it.
final class PostgresCopySource: CopySource {
    let count: CopyCount
    let moment: Int64?
    let versionLimit: Int64
    let clockLook: Int64?
    private(set) var unreadable: [String: Int] = [:]
    private let copy: CopySession
    private var coder: RowCoder
    /// The keys after which the next rows begin; nil at the end.
    private var (token, userSession): ([UInt8]?, [UInt8]?) = ([], [])

    private static let batch = 1_000

    /// Whether a store is sealed, whatever the settings say; nil if no server has started yet, or there are no tables.
    static func isSealed(_ target: ConnectionTarget, _ durability: StoreDurability) throws(StoreOpenError) -> Bool? {
        let copy = try CopySession(target, durability)
        let row = try copy.opening { () throws(PostgresError) in
            try StoreRow.read(from: copy.session, until: copy.deadline)
        }
        return row.flatMap { $0.isDecided ? $0.isSealed : nil }
    }

    /// - Parameter keys: Those of the store.
    convenience init(
        _ target: ConnectionTarget, _ durability: StoreDurability, _ keys: PostgresKeys
    ) throws(StoreOpenError) {
        let copy = try CopySession(target, durability)
        let now = Int64(time(nil))
        self.init(
            copy, keys.sealing, at: now, versionLimit: keys.versions.next().rawValue,
            try copy.opening { () throws(PostgresError) in
                // What the first statement sees, all others see.
                try copy.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return try Self.figures(of: copy)
            })
    }

    private init(
        _ copy: CopySession, _ sealing: Sealing, at moment: Int64?, versionLimit: Int64,
        _ figures: (count: CopyCount, clockLook: Int64?)
    ) {
        (self.copy, self.moment, self.versionLimit) = (copy, moment, versionLimit)
        (count, clockLook) = figures
        coder = RowCoder(sealing)
    }

    /// The rows that a transaction has added.
    fileprivate convenience init(_ copy: CopySession, _ sealing: Sealing) throws(PostgresError) {
        self.init(copy, sealing, at: nil, versionLimit: 0, try Self.figures(of: copy))
    }

    private static func figures(of copy: CopySession) throws(PostgresError) -> (CopyCount, Int64?) {
        let tokens = try copy.integer("SELECT count(*) FROM token WHERE value IS NOT NULL") ?? 0
        let sessions = try copy.integer("SELECT count(*) FROM session") ?? 0
        return (
            CopyCount(tokens: Int(tokens), sessions: Int(sessions)),
            try copy.integer("SELECT looked_at FROM store WHERE one = 1")
        )
    }

    func next() throws(StoreError) -> [CopiedRow] {
        do throws(PostgresError) {
            var rows: [CopiedRow] = []
            while rows.isEmpty, let start = token {
                let page = try TokenRows(copy.session, until: copy.deadline).page(after: start, limit: Self.batch)
                token = page.isLast ? nil : page.rows.last?.key
                for row in page.rows {
                    add(to: &rows) { () throws(SealingError) in .token(try row.token(&coder), row.times, row.version) }
                }
            }
            while rows.isEmpty, let start = userSession {
                let page = try SessionRows(copy.session, until: copy.deadline).page(after: start, limit: Self.batch)
                userSession = page.count < Self.batch ? nil : page.last?.key
                for row in page {
                    add(to: &rows) { () throws(SealingError) in .session(try coder.open(row), number: row.number) }
                }
            }
            return rows
        } catch {
            throw .read(StoreFault(error))
        }
    }

    private func add(to rows: inout [CopiedRow], _ open: () throws(SealingError) -> CopiedRow) {
        do throws(SealingError) {
            rows.append(try open())
        } catch {
            unreadable["\(error)", default: 0] += 1
        }
    }
}

/// Fills an empty store on PostgreSQL in one transaction, which an interruption rolls back.
///
/// Until it ends, the tables of tokens and sessions are locked, and no server takes a connection into use.
final class PostgresCopyTarget: CopyTarget {
    private let copy: CopySession
    private let sealing: Sealing
    private var coder: RowCoder

    /// - Parameters:
    ///   - target: Where the hosts are.
    ///   - durability: Where a commit must be on disk.
    ///   - keys: Opens the store for its keys.
    init(
        _ target: ConnectionTarget, _ durability: StoreDurability, _ keys: () throws(StoreOpenError) -> PostgresKeys
    ) throws(StoreOpenError) {
        let copy = try CopySession(target, durability)
        let refusal = try copy.opening { () throws(PostgresError) in try Self.refusal(copy) }
        if let refusal { throw .store(StoreFault(refusal)) }
        self.copy = copy
        sealing = try keys().sealing
        coder = RowCoder(sealing)
    }

    /// Begins the transaction.
    ///
    /// - Returns: Why the store cannot be filled; nil if it can.
    private static func refusal(_ copy: CopySession) throws(PostgresError) -> String? {
        // Without tables, the attempt to open the store says what to do.
        guard try StoreRow.read(from: copy.session, until: copy.deadline) != nil else { return nil }
        guard try copy.integer("SELECT pg_try_advisory_lock\(Schema.useLock)") == 1 else {
            return """
                a server or another token-cache copy uses the store, and rows are copied into one that none uses; stop it first
                """
        }
        try copy.run("BEGIN")
        try copy.run("LOCK TABLE token, session IN ACCESS EXCLUSIVE MODE")
        let isEmpty = try copy.integer("SELECT EXISTS (SELECT FROM token) OR EXISTS (SELECT FROM session)") == 0
        guard !isEmpty else { return nil }
        return """
            the store holds tokens or sessions, or what is kept for an hour of tokens that were removed, and rows are copied into \
            an empty store only; make the tables anew in another database or schema, with token-cache migrate
            """
    }

    func add(_ rows: [CopiedRow]) throws(StoreError) {
        var (tokens, sessions) = ([(row: Row, version: Int64)](), [(row: SessionRow, number: Int64)]())
        do throws(SealingError) {
            for row in rows {
                switch row {
                case .token(let token, let times, let version):
                    tokens.append((try coder.row(of: token, times), version.rawValue))
                case .session(let opened, let number):
                    sessions.append((try coder.row(of: opened.session, opened.key), number))
                }
            }
        } catch {
            throw .sealing(error)
        }
        try writing { () throws(PostgresError) in
            if !tokens.isEmpty { try add(tokens) }
            if !sessions.isEmpty { try add(sessions) }
        }
    }

    private func add(_ tokens: [(row: Row, version: Int64)]) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(tokens.map(\.row.key.bytes))
        parameters.append(tokens.map(\.version))
        parameters.append(tokens.map(\.row.times.writtenAt))
        parameters.append(tokens.map(\.row.times.expiresAt))
        parameters.append(tokens.map { Int64($0.row.keyNumber) })
        parameters.append(tokens.map(\.row.value))
        try copy.run(
            """
            INSERT INTO token (key, version, written_at, expires_at, key_number, value)
            SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])
            """, parameters)
    }

    private func add(_ sessions: [(row: SessionRow, number: Int64)]) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(sessions.map(\.row.key))
        parameters.append(sessions.map(\.row.id.bytes))
        parameters.append(sessions.map(\.row.userKey))
        parameters.append(sessions.map(\.number))
        parameters.append(sessions.map(\.row.createdAt))
        parameters.append(sessions.map(\.row.expiresAt))
        parameters.append(sessions.map(\.row.usedAt))
        parameters.append(sessions.map { Int64($0.row.keyNumber) })
        parameters.append(sessions.map(\.row.user))
        try copy.run(
            """
            INSERT INTO session (key, id, user_key, number, created_at, expires_at, used_at, key_number, user_value)
            SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[], $9::bytea[])
            """, parameters)
    }

    func reread() throws(StoreError) -> any CopySource {
        try writing { () throws(PostgresError) in try PostgresCopySource(copy, sealing) }
    }

    /// Versions are times here, and a server's later ones than those that it meets, so no limit of them is kept.
    func finish(versionLimit: Int64, clockLook: Int64?) throws(StoreError) {
        try writing { () throws(PostgresError) in
            var parameters = Parameters()
            parameters.append(clockLook)
            try copy.run("UPDATE store SET looked_at = $1::bigint WHERE one = 1", parameters)
            _ = copy.session.connection.takeWarning()
            try copy.run("COMMIT")
            // Such as one that the standby did not acknowledge.
            if let warning = copy.session.connection.takeWarning() { throw warning }
        }
    }

    func abandon() {
        try? copy.run("ROLLBACK")
    }

    private func writing<Value>(_ body: () throws(PostgresError) -> Value) throws(StoreError) -> Value {
        do throws(PostgresError) {
            return try body()
        } catch {
            throw .write(StoreFault(error))
        }
    }
}

/// The keys of a store that was opened, and the clock of its versions.
struct PostgresKeys {
    let sealing: Sealing
    let versions: VersionClock
}
#endif
