import Foundation
import Synchronization
import TokenStore

/// What a store in memory keeps when it is closed.
package final class MemoryDisk: Sendable {
    private let rows = Mutex<[[UInt8]: MemoryRow]>([:])

    package init() {}

    var count: Int { rows.withLock(\.count) }

    func row(of id: [UInt8]) -> MemoryRow? {
        rows.withLock { $0[id] }
    }

    func write(
        _ row: MemoryRow, under id: [UInt8], tokenLimit: Int?, keepsNewer: Bool
    ) -> Result<Void, StoreError> {
        rows.withLock { rows in
            if let former = rows[id] {
                if keepsNewer && former.writtenAt > row.writtenAt { return .failure(.newer) }
            } else if let tokenLimit, rows.count >= tokenLimit {
                return .failure(.full(.tokens(tokenLimit)))
            }
            rows[id] = row
            return .success(())
        }
    }

    func remove(_ ids: [[UInt8]]) -> Int {
        rows.withLock { rows in ids.count { rows.removeValue(forKey: $0) != nil } }
    }

    /// Rows in the order of their ids.
    func page(after id: [UInt8]?, limit: Int) -> (rows: [(id: [UInt8], row: MemoryRow)], isLast: Bool) {
        rows.withLock { rows in
            let rest = rows.keys.filter { key in id.map { $0.lexicographicallyPrecedes(key) } ?? true }
                .sorted { $0.lexicographicallyPrecedes($1) }
            return (rest.prefix(limit).compactMap { key in rows[key].map { (key, $0) } }, rest.count <= limit)
        }
    }
}

/// A token as it lies on a `MemoryDisk`.
struct MemoryRow: Sendable {
    let info: [UInt8]
    /// Seconds since 1970.
    let writtenAt: Int64

    /// In seconds since 1970.
    static var now: Int64 { Int64(Date.now.timeIntervalSince1970) }

    func deadline(_ retention: Retention) -> Int64 {
        retention.deadline(writtenAt: writtenAt, expiresAt: TokenExpiration.expiration(of: info.span))
    }

    func isCurrent(_ retention: Retention) -> Bool {
        deadline(retention) > MemoryRow.now
    }
}
