internal import Cryptography

/// The key of one period of the chain.
///
/// The scheme is that of Schneier and Kelsey ("Secure Audit Logs to Support Computer Forensics", 1999), which journald's
/// sealing follows too: each key gives the next one by a one-way function and is then destroyed. So nobody can make or
/// change a line of an earlier period with what is found on the machine, while the first key leads to all of them.
struct ChainKey: Sendable {
    /// From 0.
    let period: UInt64
    let key: SecretKey

    /// The key that makes the lines' MACs; it does not lead to the next period's.
    func macKey() throws(CryptographyError) -> SecretKey {
        try Self.derive(key, "token-cache audit: lines")
    }

    func next() throws(CryptographyError) -> ChainKey {
        ChainKey(period: period + 1, key: try Self.derive(key, "token-cache audit: next period"))
    }

    /// A key that another one leads to, and that does not lead back (NIST SP 800-108, with HMAC for a single block).
    static func derive(_ key: SecretKey, _ purpose: String) throws(CryptographyError) -> SecretKey {
        var bytes: [UInt8] = []
        defer { SecretKey.wipe(&bytes) }
        try KeyedHash(key).hash(Array(purpose.utf8).span, into: &bytes)
        return SecretKey(bytes.span)
    }
}
