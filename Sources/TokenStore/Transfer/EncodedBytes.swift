internal import Cryptography

/// Bytes that are a text in base64url where they are encoded, as in JSON.
package struct EncodedBytes: Codable, Hashable, Sendable {
    package var bytes: [UInt8]

    package init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let bytes = Base64URL.decode(Array(try container.decode(String.self).utf8).span) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "no base64url")
        }
        self.bytes = bytes
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(Base64URL.encode(bytes.span))
    }
}
