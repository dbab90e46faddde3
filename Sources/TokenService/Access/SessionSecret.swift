import Cryptography
import HTTP

/// The random bits of a session, and how clients write them: `tcs_` and 43 characters of base64url (RFC 4648, section 5).
package enum SessionSecret {
    /// Bytes of a secret.
    package static let length = 32

    private static let prefix: StaticString = "tcs_"
    private static let textLength = 47

    /// The text for a secret.
    package static func text(of secret: Span<UInt8>) -> [UInt8] {
        Array("\(prefix)\(Base64URL.encode(secret))".utf8)
    }

    /// Whether a text has the length and the beginning of a session.
    static func isText(_ text: Span<UInt8>) -> Bool {
        text.count == textLength && text.equals(ByteRange(0, prefix.utf8CodeUnitCount), prefix)
    }

    /// Reads a secret from its text; nil if the text cannot have come from `text(of:)`.
    static func secret(of text: Span<UInt8>) -> [UInt8]? {
        isText(text) ? Base64URL.decode(text.extracting(droppingFirst: prefix.utf8CodeUnitCount)) : nil
    }
}
