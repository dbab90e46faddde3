import Foundation
import Synchronization
import TokenStore

/// What a store in memory keeps when it is closed.
package final class MemoryDisk: Sendable {
    private let contents = Mutex(Contents())

    fileprivate struct Contents {
        var rows: [[UInt8]: MemoryRow] = [:]
        /// In the order of their creation.
        var sessions: [(key: SessionKey, session: UserSession)] = []
        var lastVersion: Int64 = 0
    }

    package init() {}

    var count: Int { contents.withLock { $0.rows.count } }
    var sessionCount: Int { contents.withLock { $0.sessions.count } }

    func row(of id: [UInt8]) -> MemoryRow? {
        contents.withLock { $0.rows[id] }
    }

    /// What a write depends on besides the row.
    struct Rules {
        var condition = WriteCondition()
        var retention = Retention()
    }

    /// - Parameter row: Gets its version here.
    func write(_ row: MemoryRow, under id: [UInt8], _ rules: Rules) -> Result<TokenVersion, StoreError> {
        contents.withLock { contents in
            if let error = contents.fault(of: rules, id) { return .failure(error) }
            if let former = contents.rows[id] {
                if rules.condition.keepsNewer && former.writtenAt >= row.writtenAt { return .failure(.newer) }
            }
            contents.lastVersion += 1
            var row = row
            row.version = TokenVersion(rawValue: contents.lastVersion)
            contents.rows[id] = row
            return .success(row.version)
        }
    }

    func remove(_ id: [UInt8], _ rules: Rules) -> Result<Bool, StoreError> {
        contents.withLock { contents in
            if let error = contents.fault(of: rules, id) { return .failure(error) }
            let wasThere = contents.current(id, rules.retention) != nil
            contents.rows[id] = nil
            return .success(wasThere)
        }
    }

    func removeRow(_ id: [UInt8]) -> Bool {
        contents.withLock { $0.rows.removeValue(forKey: id) != nil }
    }

    /// Rows in the order of their ids.
    func page(after id: [UInt8]?, limit: Int) -> (rows: [(id: [UInt8], row: MemoryRow)], isLast: Bool) {
        contents.withLock { contents in
            let rest = contents.rows.keys.filter { key in id.map { $0.lexicographicallyPrecedes(key) } ?? true }
                .sorted { $0.lexicographicallyPrecedes($1) }
            return (rest.prefix(limit).compactMap { key in contents.rows[key].map { (key, $0) } }, rest.count <= limit)
        }
    }

    // MARK: - Sessions

    func add(_ session: UserSession, _ key: SessionKey) {
        contents.withLock { $0.sessions.append((key, session)) }
    }

    /// The sessions that fit, the oldest first.
    func sessions(
        where fits: (SessionKey, UserSession) -> Bool
    ) -> [(key: SessionKey, session: UserSession)] {
        contents.withLock { $0.sessions.filter { fits($0.key, $0.session) } }
    }

    func removeSessions(_ keys: Set<SessionKey>) {
        contents.withLock { $0.sessions.removeAll { keys.contains($0.key) } }
    }

    func noteUse(of key: SessionKey, at time: Int64) {
        contents.withLock { contents in
            for (index, found) in contents.sessions.enumerated() where found.key == key {
                let session = found.session
                contents.sessions[index].session = UserSession(
                    id: session.id, user: session.user, createdAt: session.createdAt, expiresAt: session.expiresAt,
                    lastUsedAt: max(session.lastUsedAt, time))
            }
        }
    }
}

extension MemoryDisk.Contents {
    /// The version of a token that has not expired.
    fileprivate func current(_ id: [UInt8], _ retention: Retention) -> TokenVersion? {
        guard let row = rows[id], row.isCurrent(retention) else { return nil }
        return row.version
    }

    fileprivate func fault(of rules: MemoryDisk.Rules, _ id: [UInt8]) -> StoreError? {
        if let key = rules.condition.session,
            !sessions.contains(where: { $0.key == key && $0.session.expiresAt > MemoryRow.now })
        {
            return .sessionEnded
        }
        let found = current(id, rules.retention)
        return rules.condition.match.holds(for: found) ? nil : .preconditionFailed(current: found)
    }
}

/// A token as it lies on a `MemoryDisk`.
package struct MemoryRow: Sendable {
    let info: [UInt8]
    /// Seconds since 1970.
    let writtenAt: Int64
    var version = TokenVersion(rawValue: 0)

    init(info: [UInt8], writtenAt: Int64) {
        self.info = info
        self.writtenAt = writtenAt
    }

    /// In seconds since 1970.
    package static var now: Int64 { Int64(Date.now.timeIntervalSince1970) }

    func deadline(_ retention: Retention) -> Int64 {
        retention.deadline(writtenAt: writtenAt, expiresAt: TokenExpiration.expiration(of: info.span))
    }

    func isCurrent(_ retention: Retention) -> Bool {
        deadline(retention) > MemoryRow.now
    }
}
