package import Cryptography
internal import System

/// The key that everything in an audit log follows from.
///
/// It verifies the log and could rewrite all of it, so it is kept elsewhere than on the server.
package struct AuditFirstKey: Sendable {
    private let key: SecretKey

    package static func random() throws(CryptographyError) -> AuditFirstKey {
        AuditFirstKey(key: try .random())
    }

    /// The key of the first period.
    func chainKey() throws(CryptographyError) -> ChainKey {
        ChainKey(period: 0, key: try ChainKey.derive(key, "token-cache audit: chain"))
    }

    /// The key of users' and sessions' pseudonyms.
    package func pseudonymKey() throws(CryptographyError) -> SecretKey {
        try ChainKey.derive(key, "token-cache audit: pseudonyms")
    }

    /// Names the chain in the log; no secret.
    func chainName() throws(CryptographyError) -> String {
        try ChainKey.derive(key, "token-cache audit: name").withBytes { Base64URL.encode($0.extracting(..<16)) }
    }

    // MARK: - File

    private static let heading = """
        # The first key of an audit log of token-cache: verifies it, and could rewrite it.
        # Keep this file where the log is verified, and not on the server.

        """
    private static let word = "first-key "

    /// Writes the key to a new file (mode 0600).
    package func save(to path: String) throws(AuditError) {
        var text = Array((Self.heading + Self.word).utf8)
        defer { SecretKey.wipe(&text) }
        text.reserveCapacity(text.count + Base64URL.length(of: SecretKey.length) + 1)
        key.withBytes { Base64URL.append($0, to: &text) }
        text.append(UInt8(ascii: "\n"))
        try KeyFile.create(path, text)
    }

    package init(contentsOf path: String) throws(AuditError) {
        guard var lines = try KeyFile.lines(of: path) else {
            throw .keyFile(path: path, reason: "there is no such file")
        }
        defer { for index in lines.indices { SecretKey.wipe(&lines[index]) } }
        guard lines.count == 1, lines[0].starts(with: Self.word.utf8),
            let key = KeyFile.key(lines[0].dropFirst(Self.word.utf8.count))
        else {
            throw .keyFile(path: path, reason: "it is not a file that token-cache audit key has made")
        }
        self.key = key
    }

    private init(key: SecretKey) {
        self.key = key
    }
}
