#if PostgreSQL
internal import Cryptography
internal import Glibc
internal import Synchronization
internal import System
package import TokenStore

/// Administers a store on PostgreSQL, beside any number of servers that use it.
///
/// Backups are the database's business.
///
/// Any thread.
package struct PostgresAdministrator: StoreAdministrator {
    let sessions: PrimarySessions
    let state: PostgresState
    /// Changes the key ring that the servers share.
    package let keyRing: (any KeyRingAdministrator)?

    init(_ sessions: PrimarySessions, _ state: PostgresState, keyRing: (any KeyRingAdministrator)?) {
        self.sessions = sessions
        self.state = state
        self.keyRing = keyRing
    }

    package var backups: (any StoreBackups)? { nil }
    package var verifier: (any StoreVerifier)? { self }
    package var users: (any UserAdministrator)? { self }

    /// How long a step of a command may take, also while a new primary is being found.
    static let stepTime = Duration.seconds(15)

    /// Runs statements that only read.
    func reading<Value: Sendable>(
        within limit: Duration = Self.stepTime,
        _ body: @escaping @Sendable (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) async throws(StoreError) -> Value {
        try await sessions.performOnThread(.reading, within: limit, repeats: true, body)
    }

    /// The keys of some ids' rows.
    func keys(of ids: [[UInt8]]) throws(StoreError) -> [[UInt8]] {
        var coder = RowCoder(state.sealing)
        do throws(SealingError) {
            return try ids.map { (id) throws(SealingError) in
                var key = RowKey()
                try coder.key(of: id, into: &key)
                return key.bytes
            }
        } catch {
            throw .sealing(error)
        }
    }

    // MARK: - Single tokens

    package func fetch(_ id: [UInt8]) async throws(StoreError) -> [UInt8]? {
        try await find(id)?.tokenInfo
    }

    package func facts(of id: [UInt8]) async throws(StoreError) -> TokenFacts? {
        guard let (tokenInfo, times) = try await find(id) else { return nil }
        return TokenFacts(size: tokenInfo.count, writtenAt: times.writtenAt, expiresAt: times.expiresAt)
    }

    private func find(_ id: [UInt8]) async throws(StoreError) -> (tokenInfo: [UInt8], times: RowTimes)? {
        let keys = try keys(of: [id])
        let rows = try await reading { (session, deadline) throws(PostgresError) in
            try TokenRows(session, until: deadline).rows(of: keys)
        }
        guard let row = rows.first, row.value != nil else { return nil }
        let end = state.retention.deadline(writtenAt: row.times.writtenAt, expiresAt: row.times.expiresAt)
        guard end > Int64(time(nil)) else { return nil }
        var coder = RowCoder(state.sealing)
        do throws(SealingError) {
            let token = try row.token(&coder)
            // A row that is found by the hash of another id was tampered with.
            guard token.id == id else { throw .tampered(keyNumber: row.keyNumber) }
            return (token.info, row.times)
        } catch {
            state.metrics.unreadableReads.add(1, ordering: .relaxed)
            throw .sealing(error)
        }
    }

    package func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) async -> [Result<Void, StoreError>] {
        var outcomes: [Result<Void, StoreError>] = []
        for part in Self.parts(tokens) {
            let writing = TokenWriting(part, keepsNewer: keepsNewer, state)
            do throws(StoreError) {
                outcomes += try await sessions.onThread { () throws(StoreError) in writing.outcomes(sessions) }
            } catch {
                outcomes += part.map { _ in .failure(error) }
            }
        }
        return outcomes
    }

    /// The most tokens, and about the most bytes of token infos, of one transaction.
    private static let (partCount, partBytes) = (500, 4 << 20)

    /// Divides tokens into parts that are written one after the other, none of which has two of the same id.
    private static func parts(_ tokens: [(token: Token, writtenAt: Int64?)]) -> [[TokenWriting.Request]] {
        var parts: [[TokenWriting.Request]] = []
        var (part, ids, bytes) = ([TokenWriting.Request](), Set<[UInt8]>(), 0)
        for (token, writtenAt) in tokens {
            let size = token.id.count + token.info.count
            if !part.isEmpty, part.count == partCount || bytes + size > partBytes || ids.contains(token.id) {
                parts.append(part)
                (part, ids, bytes) = ([], [], 0)
            }
            part.append(TokenWriting.Request(token: token, writtenAt: writtenAt))
            ids.insert(token.id)
            bytes += size
        }
        if !part.isEmpty { parts.append(part) }
        return parts
    }

    package func remove(_ ids: [[UInt8]]) async throws(StoreError) -> [Bool] {
        let all = try keys(of: ids)
        let keys = Array(Set(all))
        var removed: Set<[UInt8]> = []
        for start in stride(from: 0, to: keys.count, by: Self.removedKeys) {
            let part = Array(keys[start..<min(start + Self.removedKeys, keys.count)])
            let found = try await sessions.onThread { () throws(StoreError) in
                try TokenRemoval(part, state).carryOut(sessions)
            }
            removed.formUnion(found)
        }
        return all.map { removed.remove($0) != nil }
    }

    /// Keys whose tokens are removed in one transaction.
    private static let removedKeys = 500

    // MARK: - Listing

    package func page(after cursor: StoreCursor?, limit: Int) async throws(StoreError) -> TokenPage {
        let (rows, isLast) = try await rows(after: try Self.key(of: cursor), limit: limit)
        var coder = RowCoder(state.sealing)
        var page = TokenPage()
        for row in rows {
            let token: Result<Token, SealingError>
            do throws(SealingError) {
                token = .success(try row.token(&coder))
            } catch {
                token = .failure(error)
            }
            page.entries.append(
                TokenPage.Entry(writtenAt: row.times.writtenAt, expiresAt: row.times.expiresAt, token: token))
        }
        if !isLast, let last = rows.last { page.next = Self.cursor(after: last.key) }
        return page
    }

    /// Some rows of tokens in the order of their keys, which are hashes in a sealed store.
    func rows(after key: [UInt8], limit: Int) async throws(StoreError) -> (rows: [StoredToken], isLast: Bool) {
        try await reading { (session, deadline) throws(PostgresError) in
            try TokenRows(session, until: deadline).page(after: key, limit: limit)
        }
    }

    /// The key after which a page begins.
    static func key(of cursor: StoreCursor?) throws(StoreError) -> [UInt8] {
        guard let cursor else { return [] }
        guard let key = Base64URL.decode(Array(cursor.text.utf8).span), !key.isEmpty else {
            throw .refused("the cursor is not one of this store's")
        }
        return key
    }

    static func cursor(after key: [UInt8]) -> StoreCursor { StoreCursor(Base64URL.encode(key.span)) }
}
#endif
