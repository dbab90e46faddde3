internal import FoundationEssentials
internal import Server

/// What operators learn of the token of an id; the token itself is never among it.
struct TokenFactsReply: Encodable, Sendable {
    private let facts: FindToken.Reply
    /// Seconds since 1970.
    private let now: Double

    init(_ facts: FindToken.Reply) {
        self.facts = facts
        now = Date().timeIntervalSince1970
    }

    private enum CodingKeys: String, CodingKey {
        case found, size, ageSeconds, storedAt, expiresAt
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(facts.isFound, forKey: .found)
        guard let size = facts.size, let writtenAt = facts.writtenAt else { return }
        try container.encode(size, forKey: .size)
        // Not negative: the time is in the future if it was imported from a machine whose clock was ahead.
        try container.encode(max(0, ((now - Double(writtenAt)) * 1000).rounded() / 1000), forKey: .ageSeconds)
        try container.encode(Self.text(writtenAt), forKey: .storedAt)
        // Null rather than missing: it was looked for.
        try container.encode(facts.expiresAt.map(Self.text), forKey: .expiresAt)
    }

    /// A time in UTC; one that is out of range becomes the nearest that is in range.
    private static func text(_ unixTime: Int64) -> String { LogTime.text(min(max(0, unixTime), 253_402_300_799)) }
}

/// Whether there was a token to delete.
struct TokenDeletionReply: Codable, Sendable {
    let deleted: Bool

    init(_ reply: RemoveTokens.Reply) {
        deleted = reply.removed > 0
    }
}
