import Glibc
import TokenStore

/// The facts by which changes are allowed or refused; the same for all changes of a transaction.
struct WriteRules {
    let acceptance: Sealing.Acceptance
    let retention: Retention
    let expiryTime: Int64
}

/// The changes of a group.
extension WriterConnection {
    /// Makes changes durable, all in one transaction and in their order, and decides their outcomes.
    ///
    /// A change may fail alone, and the others are made. If the disk or the transaction fails, the error is thrown, nothing
    /// is changed, and the outcomes mean nothing. If the disk is full, room is made where that is possible, and the transaction
    /// runs once more. If a change meets a damaged page, the transaction runs once more without the changes of that row.
    ///
    /// - Parameters:
    ///   - changes: What to change.
    ///   - rules: For all of them.
    ///   - isOfOneRow: Called with a change that has met a damaged page; returns whether the damage may concern that row alone, so
    ///     that the other changes are still made.
    func apply(
        _ changes: [PendingChange], _ rules: WriteRules, _ isOfOneRow: (Change) -> Bool
    ) throws(SQLiteError) {
        defer { failedChange = nil }
        do {
            try applyOnce(changes, rules)
        } catch {
            if error.isOfOnePage, let damaged = failedChange, isOfOneRow(damaged) {
                var sound: [PendingChange] = []
                for pending in changes {
                    if pending.change.key == damaged.key {
                        pending.outcome = .failure(.write(StoreFault(error)))
                    } else {
                        sound.append(pending)
                    }
                }
                if !sound.isEmpty { try apply(sound, rules, isOfOneRow) }
                return
            }
            guard error.isDiskFull, try makeRoom() else { throw error }
            try applyOnce(changes, rules)
        }
    }

    private func applyOnce(_ changes: [PendingChange], _ rules: WriteRules) throws(SQLiteError) {
        failedChange = nil
        try transaction { () throws(SQLiteError) in
            try checkLimits()
            for pending in changes {
                do throws(SQLiteError) {
                    pending.outcome = try outcome(of: pending.change, rules)
                } catch {
                    guard error.isOfOneStatement, connection.isInTransaction else {
                        failedChange = pending.change
                        throw error
                    }
                    pending.outcome = .failure(.write(StoreFault(error)))
                }
            }
        }
    }

    private func outcome(
        of change: Change, _ rules: WriteRules
    ) throws(SQLiteError) -> Result<ChangeOutcome, StoreError> {
        switch change {
        case .store(let row):
            guard rules.acceptance.accepts(keyNumber: row.keyNumber) else { return .failure(.staleKey) }
            return try store(row)
        case .storeIf(let row, let condition):
            guard rules.acceptance.accepts(keyNumber: row.keyNumber) else { return .failure(.staleKey) }
            if let error = try fault(of: condition, row.key, rules) { return .failure(error) }
            return try store(row)
        case .remove(let key, _, let condition):
            if let error = try fault(of: condition, key, rules) { return .failure(error) }
            let wasThere = try find(key, rules) != nil
            if try table.remove(key) { noteRemoved(1) }
            return .success(.removed(wasThere))
        case .createSession(let row, let perUser): return try create(row, perUser, rules)
        case .endSession(let id):
            guard let row = try sessions.remove(id: id) else { return .success(.ended(nil)) }
            return .success(.ended(EndedSession(id: id, user: noteEnded([row])[0]?.session.user)))
        case .endSessions(let userKey):
            return .success(.endedSome(noteEnded(try sessions.remove(userKey: userKey)).count))
        case .noteUses(let uses):
            for use in uses { try sessions.noteUse(of: use.key, at: use.usedAt) }
            return .success(.noted)
        }
    }

    // MARK: - Tokens

    /// Stores a row, in the open transaction.
    func store(_ row: Row) throws(SQLiteError) -> Result<ChangeOutcome, StoreError> {
        let version = versions.next()
        if try table.replace(row, version) { return .success(.stored(version)) }
        if row.keepsNewer, try table.find(row.key) != nil { return .failure(.newer) }
        if let reachedLimit { return .failure(.full(reachedLimit)) }
        try table.add(row, version)
        tokenCount += 1
        return .success(.stored(version))
    }

    /// Why a condition does not hold; nil if it does.
    private func fault(
        of condition: RowCondition, _ key: RowKey, _ rules: WriteRules
    ) throws(SQLiteError) -> StoreError? {
        if let session = condition.session, try !sessions.isCurrent(session, at: Int64(time(nil))) {
            return .sessionEnded
        }
        if case .any = condition.match { return nil }
        let current = try find(key, rules)
        return condition.match.holds(for: current) ? nil : .preconditionFailed(current: current)
    }

    /// The version of a token that has not expired; nil if there is none.
    private func find(_ key: RowKey, _ rules: WriteRules) throws(SQLiteError) -> TokenVersion? {
        guard let (version, times) = try table.find(key) else { return nil }
        let deadline = rules.retention.deadline(writtenAt: times.writtenAt, expiresAt: times.expiresAt)
        return deadline > rules.expiryTime ? version : nil
    }

    // MARK: - Sessions

    private func create(
        _ row: SessionRow, _ perUser: Int, _ rules: WriteRules
    ) throws(SQLiteError) -> Result<ChangeOutcome, StoreError> {
        guard rules.acceptance.accepts(keyNumber: row.keyNumber) else { return .failure(.staleKey) }
        if let reachedLimit { return .failure(.full(reachedLimit)) }
        var row = row
        row.number = versions.next().rawValue
        try sessions.add(row)
        sessionCount += 1
        let ended = noteEnded(try sessions.remove(userKey: row.userKey, exceptNewest: max(1, perUser)))
        return .success(.endedSome(ended.count))
    }

    // MARK: - Users

    /// Removes a user's token and sessions.
    ///
    /// - Returns: What was removed, and a version later than that of any removed row.
    func erase(
        _ user: [UInt8]
    ) throws(SQLiteError) -> Result<(erasure: Erasure, version: TokenVersion), StoreError> {
        var key = RowKey()
        coder.key(of: user, into: &key)
        do {
            return try transaction { () throws(SQLiteError) in
                let hadToken = try table.remove(key)
                if hadToken { noteRemoved(1) }
                let ended = noteEnded(try sessions.remove(userKey: key.bytes))
                return .success((Erasure(hadToken: hadToken, sessions: ended.count), versions.next()))
            }
        } catch {
            guard error.isOfOnePage else { throw error }
            return .failure(.write(StoreFault(error)))
        }
    }
}
