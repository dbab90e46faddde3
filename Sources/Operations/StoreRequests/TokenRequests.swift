internal import TokenService
package import TokenStore

/// Reads one token.
package struct FetchToken: StoreRequest {
    package static let name = StoreRequestName.get
    package static let replySize = 16 << 20
    package var id: String

    package struct Reply: Codable, Sendable {
        /// Nil when nothing is stored under the id.
        package var tokenInfo: String?
    }

    package init(id: String) {
        self.id = id
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        let found = try await administrator.fetch(try StoredText.id(id))
        return Reply(tokenInfo: found.map { String(decoding: $0, as: UTF8.self) })
    }
}

/// Stores tokens without changing them.
package struct StoreTokens: StoreRequest {
    package static let name = StoreRequestName.put
    package var tokens: [Entry]
    /// Whether to keep stored tokens that were written later; nil means no.
    package var keepsNewer: Bool?
    /// Whether the command is `import`, for the log; nil means `put`.
    package var isImport: Bool?

    package struct Entry: Codable, Sendable {
        package var id: String
        package var tokenInfo: String
        /// Seconds since 1970; nil for now.
        package var writtenAt: Int64?

        package init(id: String, tokenInfo: String, writtenAt: Int64? = nil) {
            self.id = id
            self.tokenInfo = tokenInfo
            self.writtenAt = writtenAt
        }

        /// The largest number of bytes that the entry takes in a request.
        package var encodedSize: Int {
            // Names, punctuation and the time.
            64 + Self.encodedSize(of: id) + Self.encodedSize(of: tokenInfo)
        }

        /// The size of a text as JSONEncoder escapes it.
        private static func encodedSize(of text: String) -> Int {
            text.utf8.reduce(0) { size, byte in
                switch byte {
                case ..<0x20: size + 6
                case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): size + 2
                default: size + 1
                }
            }
        }
    }

    package struct Reply: Codable, Sendable {
        package var stored = 0
        /// The number of stored tokens that were kept because they are newer.
        package var newer = 0
        /// The errors of tokens that were not stored, by their index in the request.
        package var failures: [Int: String] = [:]
    }

    package func act(_ reply: Reply) -> OperatorAct? {
        .counted(isImport == true ? "import" : "put", reply.stored, "tokens stored")
    }

    package init(tokens: [Entry], keepsNewer: Bool = false, isImport: Bool = false) {
        self.tokens = tokens
        self.keepsNewer = keepsNewer
        self.isImport = isImport
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        var rows: [(token: Token, writtenAt: Int64?)] = []
        for entry in tokens {
            rows.append((Token(id: try StoredText.id(entry.id), info: Array(entry.tokenInfo.utf8)), entry.writtenAt))
        }
        var reply = Reply()
        for (index, outcome) in await administrator.store(rows, keepsNewer: keepsNewer ?? false).enumerated() {
            switch outcome {
            case .success: reply.stored += 1
            case .failure(.newer): reply.newer += 1
            case .failure(let error): reply.failures[index] = "\(error)"
            }
        }
        return reply
    }
}

/// Removes tokens.
package struct RemoveTokens: StoreRequest {
    package static let name = StoreRequestName.delete
    package var ids: [String]

    package struct Reply: Codable, Sendable {
        package var removed: Int
    }

    package func act(_ reply: Reply) -> OperatorAct? { .counted("delete", reply.removed, "tokens deleted") }

    package init(ids: [String]) {
        self.ids = ids
    }

    package init(id: String) {
        self.init(ids: [id])
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        var stored: [[UInt8]] = []
        for id in ids { stored.append(try StoredText.id(id)) }
        return Reply(removed: try await administrator.remove(stored).count { $0 })
    }
}

/// Reads a page of tokens.
package struct ListTokens: StoreRequest {
    package static let name = StoreRequestName.page
    package static let replySize = 16 << 20
    /// The position to continue from: `next` of the previous page; nil for the first page.
    package var after: StoreCursor?
    /// The largest number of tokens; a page has fewer if they are large.
    package var limit: Int
    package var showsIDs: Bool
    package var showsTokenInfos: Bool

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
        package var next: StoreCursor?
    }

    private enum CodingKeys: String, CodingKey {
        case after, limit, showsTokenInfos
        // The conversion from snake case does not restore acronyms.
        case showsIDs = "showsIds"
    }

    /// A list without ids shows nothing of users.
    package func act(_ reply: Reply) -> OperatorAct? {
        if showsTokenInfos { return .counted("export", reply.tokens.count, "tokens read") }
        return showsIDs ? .counted("list with ids", reply.tokens.count, "ids read") : nil
    }

    package init(after: StoreCursor?, limit: Int, showsIDs: Bool, showsTokenInfos: Bool = false) {
        self.after = after
        self.limit = limit
        self.showsIDs = showsIDs
        self.showsTokenInfos = showsTokenInfos
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        guard (1...10_000).contains(limit) else { throw .refused("limit is \(limit); allowed is 1 to 10000") }
        let page =
            try await showsTokenInfos
            ? administrator.exportPage(after: after, limit: limit) : administrator.page(after: after, limit: limit)
        return Reply(tokens: page.entries.map(entry), next: page.next)
    }

    private func entry(_ found: TokenPage.Entry) -> Entry {
        var entry = Entry(writtenAt: found.writtenAt, expiresAt: found.expiresAt)
        switch found.token {
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
    /// An id without its tags, as ids of clients are stored.
    package static func id(_ text: String) throws(StoreError) -> [UInt8] {
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
