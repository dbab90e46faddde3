#if PostgreSQL
import System
import TokenStore

/// Stores or removes a token.
///
/// If the statement changes no row, another one asks why: either the condition does not hold, or the row has a later version, as
/// servers have different clocks. In the second case the write is repeated with a still later version, except
/// - if an earlier attempt may have been carried out: its row may have been replaced since, which nobody can tell;
/// - if the write has waited long: its client may have stored something else since, through another server;
/// - if its user was erased, unless it has a session, which then began after the erasure.
final class WriteOperation: AnsweredOperation<WriteOperation.Written> {
    typealias Written = (version: TokenVersion, isFound: Bool)

    /// The row to store; nil to remove the token.
    private let row: Row?
    private let condition: WriteCondition
    private var match: WriteCondition.Match { condition.match }
    /// The key of the row of a session that must exist; nil if none must.
    private let session: [UInt8]?
    private let statement: Statement
    private var version: TokenVersion
    private let begunAt = SystemUptime.now
    /// Whether the next statement asks why nothing was changed.
    private var isExamining = false
    private var changedCount = 0
    private var found = Examination()

    /// How many seconds a write may be repeated with a later version.
    private static let patience = 1.0

    /// Why the write changed nothing: the present state of its row, session and user.
    private struct Examination {
        var version: TokenVersion?
        var isLive = false
        var hasSession = true
        var isErased = false
        var writtenAt: Int64?
    }

    init(
        _ rows: RowAccess, _ row: Row?, under key: [UInt8], if condition: WriteCondition, session: [UInt8]?, bytes: Int,
        completion: Completion<Written>
    ) {
        (self.row, self.condition, self.session) = (row, condition, session)
        statement =
            switch condition.match {
            case _ where row == nil: .update
            case .any: condition.isEmpty ? .storeAll : .storeIf
            case .missing, .noneOf: .storeIf
            case .exists, .oneOf: .update
            }
        version = rows.state.versions.next()
        super.init(rows, (version, true), bytes: bytes, lockOrder: key, completion: completion)
    }

    private var key: [UInt8] { lockOrder }

    // MARK: - Statements

    override var sharedStatement: SharedStatement? { statement == .storeAll && !isExamining ? .store : nil }

    override var mark: Int64 { version.rawValue }

    override func append(to columns: inout SharedStatement.Columns) {
        guard let row else { return }
        columns.keys.append(row.key.bytes)
        columns.marks.append(version.rawValue)
        columns.writtenAt.append(row.times.writtenAt)
        columns.expiresAt.append(row.times.expiresAt)
        columns.keyNumbers.append(Int64(row.keyNumber))
        columns.values.append(row.value)
    }

    override func take(_ result: borrowing QueryResult, row: Int?) {
        changedCount = row == nil ? 0 : 1
    }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        let horizon = rows.horizon
        if isExamining {
            return try connection.send(
                .examine,
                [
                    .bytea(key), .bigint(horizon.written), .bigint(horizon.expired), .bytea(session),
                    .bigint(rows.unixTime),
                ])
        }
        let (kind, versions) = condition.keepsNewer ? (5, []) : match.parameters
        let parameters: Parameters = [
            .bytea(key), .bigint(version.rawValue), .bigint(row?.times.writtenAt ?? rows.unixTime),
            .bigint(row?.times.expiresAt), .bigint(row.map { Int64($0.keyNumber) } ?? Statement.tombstoneKeyNumber),
            .bytea(row?.value), .bigint(kind), .bigints(versions), .bigint(horizon.written), .bigint(horizon.expired),
            .bytea(session), .bigint(rows.unixTime),
        ]
        try connection.send(statement, parameters)
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        guard isExamining else {
            changedCount = result.changedCount
            return
        }
        guard result.rowCount > 0 else { return }
        found = Examination(
            version: result.optionalInteger(0, 0).map(TokenVersion.init(rawValue:)),
            isLive: result.integer(0, 1) != 0, hasSession: result.integer(0, 2) != 0,
            isErased: result.optionalInteger(0, 3) == 1, writtenAt: result.optionalInteger(0, 4))
    }

    // MARK: - The outcome

    override func finish() -> Bool {
        if isExamining {
            isExamining = false
            guard let outcome = judge() else { return false }
            completion(outcome)
            return true
        }
        guard changedCount == 0 else {
            if row != nil { rows.state.count { $0.store.writes += 1 } }
            completion(.success((version, true)))
            return true
        }
        isExamining = true
        // In a shared statement, its next version could be that of another write as well, and a row of the answer count for both.
        isAlone = true
        return false
    }

    /// Decides by what was found; returns the outcome, or nil if the write is to be repeated.
    private func judge() -> Result<Written, StoreError>? {
        if let seen = found.version { rows.state.versions.note(seen) }
        guard found.hasSession else { return .failure(.sessionEnded) }
        if condition.keepsNewer, found.isLive, let row, found.writtenAt ?? 0 >= row.times.writtenAt {
            return .failure(.newer)
        }
        func uncertain(_ text: String) -> Result<Written, StoreError> {
            .failure(.write(StoreFault(text, mayRetry: true)))
        }
        // Written by another request, earlier or later than this one.
        let isLater = found.version.map { $0 >= version } ?? false
        if isLater, mayHaveLanded {
            return uncertain(
                "the connection was lost during the write, so the token may have been stored or not")
        }
        let current = found.isLive ? found.version : nil
        guard match.holds(for: current) else { return .failure(.preconditionFailed(current: current)) }
        if row == nil, !found.isLive { return .success((version, false)) }
        // If the row has no later version, what was in the way has gone, and the write is repeated as it is.
        guard isLater, let seen = found.version else { return nil }
        guard !found.isErased || session != nil else {
            return uncertain("the user was erased after the write had begun, or by a server whose clock is ahead")
        }
        // After this time, the row is more likely that of a later request than that of a server whose clock is ahead.
        guard SystemUptime.now - begunAt < Self.patience else {
            return uncertain("it waited for the database, and meanwhile the token was stored by another request")
        }
        // A manipulated row may have the largest version, which its own replaces.
        let later = seen.rawValue == .max ? .max : seen.rawValue + 1
        version = max(rows.state.versions.next(), TokenVersion(rawValue: later))
        return nil
    }
}

extension WriteCondition.Match {
    /// The number of the kind in the statements (5 is `keepsNewer`), and the versions.
    fileprivate var parameters: (kind: Int64, versions: [Int64?]) {
        switch self {
        case .any: (0, [])
        case .exists: (1, [])
        case .missing: (2, [])
        case .oneOf(let versions): (3, versions.map(\.rawValue))
        case .noneOf(let versions): (4, versions.map(\.rawValue))
        }
    }
}
#endif
