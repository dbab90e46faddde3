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
final class WriteOperation: Operation {
    /// The change to carry out.
    enum Change {
        case store(Row, completion: Completion<TokenVersion>)
        case remove(key: [UInt8], completion: Completion<Bool>)

        fileprivate var key: [UInt8] {
            switch self {
            case .store(let row, _): row.key.bytes
            case .remove(let key, _): key
            }
        }
    }

    private let change: Change
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
        _ change: Change, if condition: WriteCondition, session: [UInt8]?, bytes: Int, deadline: MonotonicTime,
        rows: RowAccess
    ) {
        self.change = change
        self.condition = condition
        self.session = session
        statement =
            switch (change, condition.match) {
            case (.remove, _): .remove
            case (.store, .any): condition.isEmpty ? .store : .storeIf
            case (.store, .missing), (.store, .noneOf): .storeIf
            case (.store, .exists), (.store, .oneOf): .replaceIf
            }
        version = rows.state.versions.next()
        super.init(bytes: bytes, deadline: deadline, rows: rows, lockOrder: change.key)
    }

    override var isAwaited: Bool {
        switch change {
        case .store(_, let completion): completion.isAwaited
        case .remove(_, let completion): completion.isAwaited
        }
    }

    private var key: [UInt8] { lockOrder }

    // MARK: - Statements

    override var sharedStatement: SharedStatement? {
        isAlone || statement != .store ? nil : .store
    }

    override var mark: Int64 { version.rawValue }

    override func append(to columns: inout SharedStatement.Columns) {
        guard case .store(let row, _) = change else { return }
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
        rows.parameters.removeAll()
        if isExamining {
            let horizon = rows.horizon
            rows.parameters.append(key)
            rows.parameters.append(horizon.written)
            rows.parameters.append(horizon.expired)
            rows.parameters.append(session)
            rows.parameters.append(rows.unixTime)
            return try Statement.examine.send(on: connection, rows)
        }
        switch change {
        case .store(let row, _):
            rows.parameters.append(row.key.bytes)
            rows.parameters.append(version.rawValue)
            rows.parameters.append(row.times.writtenAt)
            rows.parameters.append(row.times.expiresAt)
            rows.parameters.append(Int64(row.keyNumber))
            rows.parameters.append(row.value)
        case .remove(let key, _):
            rows.parameters.append(key)
            rows.parameters.append(version.rawValue)
            rows.parameters.append(rows.unixTime)
            rows.parameters.append(nil as Int64?)
            rows.parameters.append(Statement.tombstoneKeyNumber)
            rows.parameters.append(nil as [UInt8]?)
        }
        if statement != .store { appendCondition() }
        try statement.send(on: connection, rows)
    }

    private func appendCondition() {
        let (kind, versions) = condition.keepsNewer ? (5, []) : match.parameters
        let horizon = rows.horizon
        rows.parameters.append(kind)
        rows.parameters.append(versions)
        rows.parameters.append(horizon.written)
        rows.parameters.append(horizon.expired)
        rows.parameters.append(session)
        rows.parameters.append(rows.unixTime)
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

    override func finish() -> Outcome {
        if isExamining { return judge() }
        guard changedCount == 0 else {
            succeed()
            return .done
        }
        isExamining = true
        // Its next version may be that of another write as well, whose row in the answer would count for both.
        isAlone = true
        return .goesOn
    }

    /// Decides by what was found what comes next.
    private func judge() -> Outcome {
        isExamining = false
        if let seen = found.version { rows.state.versions.note(seen) }
        if !found.hasSession {
            fail(.sessionEnded)
        } else if condition.keepsNewer, found.isLive, case .store(let row, let completion) = change,
            let writtenAt = found.writtenAt, writtenAt > row.times.writtenAt
        {
            completion(.failure(.newer))
        } else if let seen = found.version, seen >= version {
            // Written by somebody else, before this write or after it.
            guard !mayHaveLanded else {
                let text = "the connection was lost during the write, so the token may have been stored or not"
                fail(.write(StoreFault(text, mayRetry: true)))
                return .done
            }
            guard match.holds(for: found.isLive ? seen : nil) else {
                failPrecondition()
                return .done
            }
            if case .remove(_, let completion) = change, !found.isLive {
                completion(.success(false))
                return .done
            }
            guard !found.isErased || session != nil else {
                let text = "the user was erased after the write had begun, or by a server whose clock is ahead"
                fail(.write(StoreFault(text, mayRetry: true)))
                return .done
            }
            // After this time, it was more likely written later than by a server whose clock is ahead.
            guard (MonotonicTime.now - begunAt).count < Self.patience.count else {
                let text = "it waited for the database, and meanwhile the token was stored by another request"
                fail(.write(StoreFault(text, mayRetry: true)))
                return .done
            }
            version = max(rows.state.versions.next(), TokenVersion(rawValue: seen.rawValue + 1))
            return .goesOn
        } else if !match.holds(for: found.isLive ? found.version : nil) {
            failPrecondition()
        } else if case .remove(_, let completion) = change, !found.isLive {
            completion(.success(false))
        } else {
            // What was in the way has gone meanwhile.
            return .goesOn
        }
        return .done
    }

    private func failPrecondition() {
        fail(.preconditionFailed(current: found.isLive ? found.version : nil))
    }

    private func succeed() {
        switch change {
        case .store(_, let completion):
            rows.state.metrics.writes.add(1, ordering: .relaxed)
            completion(.success(version))
        case .remove(_, let completion): completion(.success(true))
        }
    }

    override func fail(_ error: StoreError) {
        switch change {
        case .store(_, let completion): completion(.failure(error))
        case .remove(_, let completion): completion(.failure(error))
        }
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
