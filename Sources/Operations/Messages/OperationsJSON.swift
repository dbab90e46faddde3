package import FoundationEssentials

/// The JSON of everything that operators and their programs read: keys in `snake_case` and in alphabetical order.
package enum OperationsJSON {
    /// Encodes a value; property names such as `expiresAt` become keys such as `expires_at`.
    ///
    /// - Throws: What the value's own `encode` throws.
    package static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.withoutEscapingSlashes, .sortedKeys]
        encoder.keyEncodingStrategy = .convertToSnakeCase
        return try encoder.encode(value)
    }

    /// Decodes what `encode` makes.
    ///
    /// - Throws: `DecodingError`, whose text may hold values: show its coding path only.
    package static func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return try decoder.decode(type, from: data)
    }
}
