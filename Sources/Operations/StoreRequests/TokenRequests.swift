package import Audit
import TokenService
package import TokenStore

/// Reads one token.
package struct FetchToken: StoreRequest {
    package static let name = "get"
    package var action: AuditEvent.Action? { .read }
    var id: String

    package struct Reply: Codable, Sendable {
        /// Nil when nothing is stored under the id.
        package var tokenInfo: String?
    }

    package init(id: String) {
        self.id = id
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        let id = try StoredText.id(id)
        let found = try await store.trail.recording(action, user: id, try await store.handle.fetch(id)) { found, deed in
            if found == nil { deed.outcome = .notFound }
        }
        return Reply(tokenInfo: found.map { String(decoding: $0, as: UTF8.self) })
    }
}

/// Stores tokens without changing them.
package struct StoreTokens: StoreRequest {
    package static let name = "put"
    package var action: AuditEvent.Action? { .store }
    var tokens: [Entry]
    /// Whether to keep stored tokens that were written later; nil means no.
    var keepsNewer: Bool?
    /// Whether the request is the first of an import, for the log, which has a line for each import; nil for `put`.
    var beginsImport: Bool?

    package struct Entry: Codable, Sendable {
        var id: String
        var tokenInfo: String
        /// Seconds since 1970; nil for now.
        ///
        /// With `keepsNewer`, a token without a time is stored only if there is none under its id.
        var writtenAt: Int64?

        package init(id: String, tokenInfo: String, writtenAt: Int64? = nil) {
            self.id = id
            self.tokenInfo = tokenInfo
            self.writtenAt = writtenAt
        }

        /// How many bytes the entry takes in a request.
        package var encodedSize: Int { (try? OperationsJSON.encode(self).count) ?? 0 }
    }

    package struct Reply: Codable, Sendable {
        package var stored = 0
        /// The number of stored tokens that were kept because they are newer.
        package var newer = 0
        /// The errors of tokens that were not stored, by their index in the request.
        package var failures: [Int: String] = [:]
    }

    package func act(_ reply: Reply) -> OperatorAct? {
        guard let beginsImport else {
            let failure = reply.failures.values.first.map { ", not stored: \(reply.failures.count) (\($0))" }
            return ("put", "tokens stored: \(reply.stored)\(failure ?? "")")
        }
        return beginsImport ? ("import", "begun") : nil
    }

    package init(tokens: [Entry], keepsNewer: Bool = false, beginsImport: Bool? = nil) {
        self.tokens = tokens
        self.keepsNewer = keepsNewer
        self.beginsImport = beginsImport
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        var rows: [(token: Token, writtenAt: Int64?)] = []
        for entry in tokens {
            rows.append((Token(id: try StoredText.id(entry.id), info: Array(entry.tokenInfo.utf8)), entry.writtenAt))
        }
        let outcomes = try await store.trail.recording(
            action, users: rows.map(\.token.id), await store.handle.store(rows, keepsNewer: keepsNewer ?? false))
        var reply = Reply()
        for (index, outcome) in outcomes.enumerated() {
            switch outcome {
            case .success: reply.stored += 1
            case .failure(.newer), .failure(.preconditionFailed): reply.newer += 1
            case .failure(let error): reply.failures[index] = "\(error)"
            }
        }
        return reply
    }
}

/// Removes tokens.
package struct RemoveTokens: StoreRequest {
    package static let name = "delete"
    package var action: AuditEvent.Action? { .remove }
    var ids: [String]

    package func act(_ reply: Removed) -> OperatorAct? { ("delete", "tokens deleted: \(reply.removed)") }

    package init(ids: [String]) {
        self.ids = ids
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Removed {
        var stored: [[UInt8]] = []
        for id in ids { stored.append(try StoredText.id(id)) }
        let outcomes = try await store.trail.recording(action, users: stored, await store.handle.remove(stored)) {
            wasThere, deed in
            if !wasThere { deed.outcome = .notFound }
        }
        return Removed(removed: try outcomes.count { (outcome) throws(StoreError) in try outcome.get() })
    }
}

/// How many tokens or sessions were removed.
package struct Removed: Codable, Sendable {
    package var removed: Int
}

/// Reads a page of tokens.
package struct ListTokens: StoreRequest {
    package static let name = "page"
    package var action: AuditEvent.Action? { showsTokenInfos ? .export : .list }
    /// The position to continue from: `next` of the previous page; nil for the first page.
    var after: String?
    /// The largest number of tokens; a page has fewer if they are large.
    var limit: Int
    package var showsIDs: Bool
    var showsTokenInfos: Bool

    package struct Entry: Codable, Sendable {
        /// Seconds since 1970.
        package var writtenAt: Int64
        package var expiresAt: Int64?
        /// The size of the token info in bytes; nil if the row cannot be decrypted.
        package var size: Int?
        package var id: String?
        package var tokenInfo: String?
        /// Why the row cannot be decrypted.
        package var fault: String?
    }

    package struct Reply: Codable, Sendable {
        package var tokens: [Entry]
        /// Where the next page begins; nil after the last page.
        package var next: String?
    }

    private enum CodingKeys: String, CodingKey {
        case after, limit, showsTokenInfos
        // The conversion from snake case does not restore acronyms.
        case showsIDs = "showsIds"
    }

    /// A line for the first page; a list without ids shows nothing of users.
    package func act(_ reply: Reply) -> OperatorAct? {
        guard after == nil else { return nil }
        return showsTokenInfos ? ("export", "begun") : showsIDs ? ("list with ids", "begun") : nil
    }

    package init(after: String?, limit: Int, showsIDs: Bool, showsTokenInfos: Bool = false) {
        self.after = after
        self.limit = limit
        self.showsIDs = showsIDs
        self.showsTokenInfos = showsTokenInfos
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        guard (1...10_000).contains(limit) else { throw .refused("limit is \(limit); allowed is 1 to 10000") }
        // One event without a user, as it is about the tokens of all users.
        let page = try await store.trail.recording(
            action, try await store.administrator.page(after: after, limit: limit))
        // The list of departures is nobody's token.
        let tokens = page.entries.filter { (try? $0.token.get().id) != Departures.listID }
        return Reply(tokens: tokens.map { entry($0.times, $0.token) }, next: page.next)
    }

    private func entry(_ times: RowTimes, _ token: Result<Token, SealingError>) -> Entry {
        var entry = Entry(writtenAt: times.writtenAt, expiresAt: times.expiresAt)
        switch token {
        case .success(let token):
            entry.size = token.info.count
            if showsIDs { entry.id = String(decoding: token.id, as: UTF8.self) }
            if showsTokenInfos { entry.tokenInfo = String(decoding: token.info, as: UTF8.self) }
        case .failure(let error): entry.fault = "\(error)"
        }
        return entry
    }
}

/// Applies the contract's tag removal to operators' ids and token infos.
package enum StoredText {
    /// An id without its tags, as ids of clients are stored; a user is stored as the id of its token.
    static func id(_ text: String) throws(StoreError) -> [UInt8] {
        guard let id = UniqueID(Array(text.utf8)).text else {
            throw .refused("the id is empty, longer than \(UniqueID.limit) bytes, or contains a NUL")
        }
        return id
    }

    /// A token info without its tags, as token infos of clients are stored.
    package static func tokenInfo(_ text: String) -> String {
        String(decoding: TagRemoval.removeTags(from: Array(text.utf8)), as: UTF8.self)
    }
}
