package import Cryptography

/// The secret text of a key: the prefix of its kind and 43 characters of base64url, which stand for 256 random bits.
///
/// The prefix lets scanners of source code find keys that were committed by mistake.
package enum BearerKeySecret<Scope: BearerKeyScope> {
    private static var byteCount: Int { 32 }

    /// A new secret.
    package static func random() throws(CryptographyError) -> String {
        var bytes = try RandomBytes.secret(byteCount)
        defer { SecretKey.wipe(&bytes) }
        return Scope.kind.prefix + Base64URL.encode(bytes.span)
    }

    /// SHA-256 of a secret's text; nil if the text is no secret of a key.
    ///
    /// A fast hash is enough: nobody can try 2^256 secrets.
    package static func digest(of text: Span<UInt8>) throws(CryptographyError) -> [UInt8]? {
        let prefix = Scope.kind.prefix.utf8
        let prefixCount = prefix.count
        guard text.count == prefixCount + Base64URL.length(of: byteCount),
            zip(0..., prefix).allSatisfy({ text[$0] == $1 }),
            Base64URL.decode(text.extracting(prefixCount..<text.count)) != nil
        else { return nil }
        return try SHA256Digest.digest(of: text)
    }
}
