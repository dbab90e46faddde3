import TokenStore

/// Administers a `MemoryStore`, with none of the capabilities that only some stores have.
struct MemoryAdministrator: StoreAdministrator {
    private let store: MemoryStore

    init(_ store: MemoryStore) {
        self.store = store
    }

    var keyRing: (any KeyRingAdministrator)? { nil }
    var handle: WaitingHandle {
        WaitingHandle { [store] (deliver) throws(StoreError) in try store.makeHandle(deliver: deliver) }
    }

    func page(after cursor: String?, limit: Int) throws(StoreError) -> TokenPage {
        var start: [UInt8]?
        if let cursor {
            guard cursor.hasPrefix("after ") else { throw .refused("the cursor is not one of this store's") }
            start = cursor.dropFirst(6).split(separator: ",").compactMap { UInt8($0) }
        }
        let (rows, isLast) = store.page(after: start, limit: limit)
        var page = TokenPage()
        page.entries = rows.map { id, row in
            (
                RowTimes(writtenAt: row.writtenAt, expiresAt: TokenExpiration.expiration(of: row.info.span)),
                .success(Token(id: id, info: row.info))
            )
        }
        if !isLast, let last = rows.last {
            page.next = "after " + last.id.map(String.init).joined(separator: ",")
        }
        return page
    }

    func verify(_ progress: @escaping @Sendable (StoreProgress) -> Void) -> StoreVerification {
        var verification = StoreVerification()
        verification.tokens = store.count
        return verification
    }

    func walk(_ progress: @escaping @Sendable (StoreProgress) -> Void) -> WalkReport {
        var report = WalkReport(beganAt: 0)
        report.tokens = store.count
        return report
    }

    func statistics() -> StoreStatistics {
        StoreStatistics(tokens: store.count, newestKey: 1, software: "Memory 1", place: "this process")
    }
}
