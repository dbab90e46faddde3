internal import Cryptography
internal import HTTP

/// A session as clients send it: `tcs_` and 43 characters of base64url (RFC 4648, section 5) for 256 random bits.
///
/// Its bytes lie in six words, so that a session is looked up without an allocation. Comparing takes constant time. It has no
/// description that could end up in a log.
struct SessionText: Hashable, Sendable {
    /// Bytes of the text.
    static let length = 47
    /// How every session begins.
    static let prefix: StaticString = "tcs_"

    /// Bytes 0 to 39, eight each, and bytes 39 to 46.
    private let words: InlineArray<6, UInt64>

    /// - Returns: Nil for a text that cannot be a session by its length or its beginning.
    init?(_ text: Span<UInt8>) {
        guard text.count == Self.length, text.equals(ByteRange(0, 4), Self.prefix) else { return nil }
        words = InlineArray { index in
            // The loads end with the text: 39 + 8 = 47.
            unsafe text.bytes.unsafeLoadUnaligned(fromByteOffset: min(8 * index, 39), as: UInt64.self)
        }
    }

    static func == (one: SessionText, other: SessionText) -> Bool {
        var difference: UInt64 = 0
        for index in one.words.indices { difference |= one.words[index] ^ other.words[index] }
        return difference == 0
    }

    /// Eight of its random characters are enough, as nobody can choose the sessions of a table: they were all made here.
    func hash(into hasher: inout Hasher) { hasher.combine(words[2]) }

    /// A number that is as random as the session; another one than the hash is made of.
    var number: Int { Int(truncatingIfNeeded: words[4] ^ words[4] >> 8 ^ words[4] >> 16) }
}

/// The random bits of a session, and how clients write them.
package enum SessionSecret {
    /// Bytes of a secret.
    package static let length = 32

    /// The text for a secret.
    package static func text(of secret: Span<UInt8>) -> [UInt8] {
        Array("\(SessionText.prefix)\(Base64URL.encode(secret))".utf8)
    }

    /// The secret of a text; nil if it is not one that `text` has written.
    static func secret(of text: Span<UInt8>) -> [UInt8]? {
        guard text.count == SessionText.length, text.equals(ByteRange(0, 4), SessionText.prefix) else { return nil }
        return Base64URL.decode(text.extracting(droppingFirst: SessionText.prefix.utf8CodeUnitCount))
    }
}
