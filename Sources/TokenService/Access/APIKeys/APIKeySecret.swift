package import Cryptography

/// The secret text of an API key: `tck_` and 43 characters of base64url, which stand for 256 random bits.
///
/// The prefix lets scanners of source code find keys that were committed by mistake.
package enum APIKeySecret {
    package static let prefix: StaticString = "tck_"
    private static let byteCount = 32

    /// A new secret.
    package static func random() throws(CryptographyError) -> String {
        var bytes = try RandomBytes.secret(byteCount)
        defer { SecretKey.wipe(&bytes) }
        return "\(prefix)" + Base64URL.encode(bytes.span)
    }

    /// SHA-256 of a secret's text; nil if the text is no secret of a key.
    ///
    /// A fast hash is enough: nobody can try 2^256 secrets.
    package static func digest(of text: Span<UInt8>) throws(CryptographyError) -> [UInt8]? {
        let prefixCount = prefix.utf8CodeUnitCount
        guard text.count == prefixCount + Base64URL.length(of: byteCount),
            (0..<prefixCount).allSatisfy({ text[$0] == prefixBytes[$0] }),
            Base64URL.decode(text.extracting(prefixCount..<text.count)) != nil
        else { return nil }
        return try SHA256Digest.digest(of: text)
    }

    private static let prefixBytes = Array("\(prefix)".utf8)
}
