package import Cryptography

/// What stands for a user or a session in the audit log: the first 16 bytes of an HMAC.
///
/// Only who has the key can find out whom it stands for, by trying. The key stays the same as long as the log's first key,
/// so that a user's lines can be found over the years.
package struct AuditPseudonym: Hashable, Sendable {
    /// What is hashed; a user and a session with the same bytes have different pseudonyms.
    package enum Kind: String, Sendable, CaseIterable {
        /// The bytes that are the row key's input.
        case user
        /// The 16 bytes of the session's public id: a session that is ended by its id is found again.
        case session
    }

    /// As it stands in the log: base64url.
    private let characters: InlineArray<22, UInt8>

    /// - Parameter hash: Of which the first 16 bytes count.
    init(_ hash: [UInt8]) {
        var text: [UInt8] = []
        Base64URL.append(hash.span.extracting(..<16), to: &text)
        characters = InlineArray { text[$0] }
    }

    /// As it stands in the log: 22 characters of base64url.
    package var text: String {
        var bytes: [UInt8] = []
        append(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Appends the text.
    func append(to line: inout [UInt8]) {
        line.append(span: characters.span)
    }

    package static func == (left: AuditPseudonym, right: AuditPseudonym) -> Bool {
        left.characters.indices.allSatisfy { left.characters[$0] == right.characters[$0] }
    }

    package func hash(into hasher: inout Hasher) {
        for index in characters.indices { hasher.combine(characters[index]) }
    }
}

/// Makes pseudonyms.
///
/// Used by one thread at a time: each loop has its own.
package final class AuditHasher {
    private let hash: KeyedHash
    private var message: [UInt8] = []
    private var result: [UInt8] = []

    package init(_ key: SecretKey) throws(CryptographyError) {
        hash = try KeyedHash(key)
    }

    package func pseudonym(
        _ kind: AuditPseudonym.Kind, of identifier: Span<UInt8>
    ) throws(CryptographyError) -> AuditPseudonym {
        defer { SecretKey.wipe(&message) }
        message.removeAll(keepingCapacity: true)
        // The kinds' names have no NUL.
        message.append(contentsOf: kind.rawValue.utf8)
        message.append(0)
        message.append(span: identifier)
        try hash.hash(message.span, into: &result)
        return AuditPseudonym(result)
    }
}
