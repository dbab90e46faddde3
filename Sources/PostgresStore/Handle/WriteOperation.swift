#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// Stores or removes a token.
///
/// If the statement has found no row that it may change, another one asks why: the condition does not hold, or a later version is
/// there, as servers have different clocks. In the second case the write is repeated with a still later version, unless an
/// earlier attempt may have been carried out: then nobody can tell whether it was, and what it wrote was replaced since. Nor is a
/// write repeated that has waited long: its client may have stored something else since, through another server. Nor one that finds
/// its user erased, unless it has a session, which is then one from after the erasure.
final class WriteOperation: AnsweredOperation<WriteOperation.Written> {
    typealias Written = (version: TokenVersion, isFound: Bool)

    /// What is stored; nil to remove the token.
    private let row: Row?
    private let condition: WriteCondition
    private var match: WriteCondition.Match { condition.match }
    /// The key of the row of a session that must be there.
    private let session: [UInt8]?
    private let statement: Statement
    private var version: TokenVersion
    private let begunAt = MonotonicTime.now
    /// Whether the next statement asks why nothing was changed.
    private var isExamining = false
    private var changedCount = 0
    private var found = Examination()

    /// How long a write may be repeated with a later version.
    private static let patience = Nanoseconds(.seconds(1))

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
            case .any: condition.isEmpty ? .store : .storeIf
            case .missing, .noneOf: .storeIf
            case .exists, .oneOf: .update
            }
        version = rows.state.versions.next()
        super.init(rows, (version, true), bytes: bytes, lockOrder: key, completion: completion)
    }

    private var key: [UInt8] { lockOrder }

    // MARK: - Statements

    override var sharedStatement: SharedStatement? { statement == .store ? .store : nil }

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
        var parameters: Parameters = [
            .bytea(key), .bigint(version.rawValue), .bigint(row?.times.writtenAt ?? rows.unixTime),
            .bigint(row?.times.expiresAt), .bigint(row.map { Int64($0.keyNumber) } ?? Statement.tombstoneKeyNumber),
            .bytea(row?.value),
        ]
        if statement != .store {
            let (kind, versions) = condition.keepsNewer ? (5, []) : match.parameters
            for value: Parameters.Value in [
                .bigint(kind), .bigints(versions), .bigint(horizon.written), .bigint(horizon.expired), .bytea(session),
                .bigint(rows.unixTime),
            ] { parameters.append(value) }
        }
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
        // Its next version may be that of another write as well, whose row in the answer would count for both.
        isAlone = true
        return false
    }

    /// Decides by what was found what comes next; nil if the write is repeated.
    private func judge() -> Result<Written, StoreError>? {
        if let seen = found.version { rows.state.versions.note(seen) }
        guard found.hasSession else { return .failure(.sessionEnded) }
        if condition.keepsNewer, found.isLive, let row, found.writtenAt ?? 0 > row.times.writtenAt {
            return .failure(.newer)
        }
        func uncertain(_ text: String) -> Result<Written, StoreError> {
            .failure(.write(StoreFault(text, mayRetry: true)))
        }
        // Written by somebody else, before this write or after it.
        let isLater = found.version.map { $0 >= version } ?? false
        if isLater, mayHaveLanded {
            return uncertain(
                "the connection was lost during the write, so the token may have been stored or not")
        }
        let current = found.isLive ? found.version : nil
        guard match.holds(for: current) else { return .failure(.preconditionFailed(current: current)) }
        if row == nil, !found.isLive { return .success((version, false)) }
        // Otherwise what was in the way has gone meanwhile.
        guard isLater, let seen = found.version else { return nil }
        guard !found.isErased || session != nil else {
            return uncertain("the user was erased after the write had begun, or by a server whose clock is ahead")
        }
        // After this time, it was more likely written later than by a server whose clock is ahead.
        guard (MonotonicTime.now - begunAt).count < Self.patience.count else {
            return uncertain("it waited for the database, and meanwhile the token was stored by another request")
        }
        version = max(rows.state.versions.next(), TokenVersion(rawValue: seen.rawValue + 1))
        return nil
    }
}

extension WriteCondition.Match {
    /// The numbers that the statements have for each kind, and the versions.
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
