import Synchronization
import TokenStore

/// Administers a `MemoryStore`; without any of the capabilities that only some stores have.
struct MemoryAdministrator: StoreAdministrator {
    private let store: MemoryStore

    init(_ store: MemoryStore) {
        self.store = store
    }

    var backups: (any StoreBackups)? { nil }
    var keyRing: (any KeyRingAdministrator)? { nil }
    var verifier: (any StoreVerifier)? { nil }
    var users: (any UserAdministrator)? { nil }
    var transfer: (any StoreTransfer)? { nil }

    func fetch(_ id: [UInt8]) -> [UInt8]? {
        if case .found(let info, _, _) = store.fetch(id) { info } else { nil }
    }

    func facts(of id: [UInt8]) -> TokenFacts? {
        store.row(of: id).map { row in
            TokenFacts(
                size: row.info.count, writtenAt: row.writtenAt, expiresAt: TokenExpiration.expiration(of: row.info.span)
            )
        }
    }

    func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) -> [Result<Void, StoreError>] {
        let outcomes = Mutex<[Result<Void, StoreError>]>([])
        store.commit(
            tokens.map { token, writtenAt in
                MemoryChange(writtenID: token.id) { store, retention, error in
                    let row = MemoryRow(info: token.info, writtenAt: writtenAt ?? MemoryRow.now)
                    let outcome =
                        error.map { .failure($0) }
                        ?? store.write(row, under: token.id, retention, keepsNewer: keepsNewer).map { _ in }
                    outcomes.withLock { $0.append(outcome) }
                }
            }
        )
        return outcomes.withLock { $0 }
    }

    func remove(_ ids: [[UInt8]]) -> [Bool] {
        store.remove(ids)
    }

    func page(after cursor: StoreCursor?, limit: Int) throws(StoreError) -> TokenPage {
        var start: [UInt8]?
        if let cursor {
            guard cursor.text.hasPrefix("after ") else { throw .refused("the cursor is not one of this store's") }
            start = cursor.text.dropFirst(6).split(separator: ",").compactMap { UInt8($0) }
        }
        let (rows, isLast) = store.page(after: start, limit: limit)
        var page = TokenPage()
        page.entries = rows.map { id, row in
            TokenPage.Entry(
                writtenAt: row.writtenAt, expiresAt: TokenExpiration.expiration(of: row.info.span),
                token: .success(Token(id: id, info: row.info))
            )
        }
        if !isLast, let last = rows.last {
            page.next = StoreCursor("after " + last.id.map(String.init).joined(separator: ","))
        }
        return page
    }

    func statistics(exactly: Bool) -> StoreStatistics {
        StoreStatistics(
            tokens: store.count, isSealed: false, software: "Memory 1", unreadableReads: 0, place: "this process"
        )
    }
}
