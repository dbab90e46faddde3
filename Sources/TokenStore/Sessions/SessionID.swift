package import Cryptography

/// Names a session towards operators and backends; no secret, and of no use to a client.
///
/// Its text is that of `length` random bytes in base64url, 22 characters.
package struct SessionID: Hashable, Sendable, CustomStringConvertible {
    /// Bytes of an id.
    package static let length = 16

    package let bytes: [UInt8]

    /// - Parameter bytes: As `bytes` of another id.
    package init(_ bytes: [UInt8]) {
        precondition(bytes.count == Self.length, "the id of a session has 16 bytes")
        self.bytes = bytes
    }

    /// Reads the text; nil if it is not that of an id.
    package init?(_ text: String) {
        guard let bytes = Base64URL.decode(Array(text.utf8).span), bytes.count == Self.length else { return nil }
        self.bytes = bytes
    }

    /// A new id, whose text does not begin with a hyphen: a command would take that for an option.
    package static func random() throws(CryptographyError) -> SessionID {
        while true {
            let bytes = try RandomBytes.published(length)
            // The first character has the first six bits; 62 is the hyphen (RFC 4648, section 5).
            if bytes[0] >> 2 != 62 { return SessionID(bytes) }
        }
    }

    package var description: String { Base64URL.encode(bytes.span) }
}
