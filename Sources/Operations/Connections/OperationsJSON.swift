package import FoundationEssentials

/// Encodes and decodes the JSON that operators and their tools read: keys in `snake_case`, in alphabetical order.
package enum OperationsJSON {
    /// Encodes a value; property names such as `expiresAt` become keys such as `expires_at`.
    ///
    /// - Throws: The errors of the value's own `encode`.
    package static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.withoutEscapingSlashes, .sortedKeys]
        encoder.keyEncodingStrategy = .convertToSnakeCase
        return try encoder.encode(value)
    }

    /// Decodes the output of `encode`.
    ///
    /// - Throws: `DecodingError`. Its text may contain values, which may be secret: show its coding path only.
    package static func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return try decoder.decode(type, from: data)
    }
}

/// A JSON object that is written where it is made; members that are nil are left out.
struct ObjectLiteral: Encodable, ExpressibleByDictionaryLiteral {
    private let members: [(name: String, value: (any Encodable)?)]

    init(dictionaryLiteral members: (String, (any Encodable)?)...) {
        self.members = members
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Name.self)
        for case (let name, let value?) in members { try container.encode(value, forKey: Name(stringValue: name)) }
    }

    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) {
            self.stringValue = stringValue
        }

        init?(intValue: Int) { nil }
    }
}
