/// What is known about a key, which is a secret that whoever has it may show; the secret itself is not kept.
package struct BearerKey<Scope: BearerKeyScope>: Hashable, Sendable {
    /// Names the key for people and in the audit log; 1 to 64 letters, digits, dots, `-` and `_`.
    package let name: String
    /// At least one.
    package let scopes: Set<Scope>
    /// In seconds since 1970.
    package let createdAt: Int64
    /// From when on it is not valid any more, in seconds since 1970; nil for a key without an end.
    package let expiresAt: Int64?

    package init(name: String, scopes: Set<Scope>, createdAt: Int64, expiresAt: Int64?) {
        self.name = name
        self.scopes = scopes
        self.createdAt = createdAt
        self.expiresAt = expiresAt
    }

    package func hasExpired(at unixTime: Int64) -> Bool { expiresAt.map { $0 <= unixTime } ?? false }

    /// What a name may be, to be read after "allowed is".
    package static var allowedNames: String { "1 to 64 letters, digits, dots, - and _" }

    /// Whether a text can be a key's name: it is written to logs as it is.
    package static func isName(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "-_.".contains($0)) }
    }
}
