public import Foundation

extension TokenInformation {
    /// A JSON value (RFC 8259), for the keys that this library does not know.
    public indirect enum Value: Sendable, Hashable, Codable {
        /// `null`
        case null
        /// `true` or `false`
        case bool(Bool)
        /// A number of up to 38 digits.
        case number(Decimal)
        /// A string, without its quotes and escapes.
        case string(String)
        /// An array.
        case array([Value])
        /// An object; only one of several members with the same name is kept.
        case object([String: Value])

        /// The string's text; nil for every other kind.
        public var string: String? {
            if case .string(let text) = self { text } else { nil }
        }

        /// Reads a value that is nested at most 64 times, as each level takes room on the stack.
        public init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            guard decoder.codingPath.count < 64 else {
                throw DecodingError.dataCorruptedError(in: container, debugDescription: "It is nested too deeply.")
            }
            if container.decodeNil() {
                self = .null
            } else if let bool = try? container.decode(Bool.self) {
                self = .bool(bool)
            } else if let text = try? container.decode(String.self) {
                self = .string(text)
            } else if let number = try? container.decode(Decimal.self) {
                self = .number(number)
            } else if let elements = try? container.decode([Value].self) {
                self = .array(elements)
            } else {
                self = .object(try container.decode([String: Value].self))
            }
        }

        /// Writes the value; NaN becomes null.
        public func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            switch self {
            case .null: try container.encodeNil()
            case .bool(let bool): try container.encode(bool)
            case .number(let number) where number.isFinite: try container.encode(number)
            case .number: try container.encodeNil()
            case .string(let text): try container.encode(text)
            case .array(let elements): try container.encode(elements)
            case .object(let members): try container.encode(members)
            }
        }

        /// A value of a property list; dates become text, and data is kept in base64.
        init(ofPropertyList value: Any) {
            switch value {
            case let date as Date: self = .string(TokenDate.text(date))
            case let text as String: self = .string(text)
            case let data as Data: self = .string(data.base64EncodedString())
            case let elements as [Any]: self = .array(elements.map(Self.init(ofPropertyList:)))
            case let members as [String: Any]: self = .object(members.mapValues(Self.init(ofPropertyList:)))
            #if canImport(Darwin)
            // Numbers and Booleans are one type there, and can be cast to each other.
            case let number as NSNumber where CFGetTypeID(number) == CFBooleanGetTypeID():
                self = .bool(number.boolValue)
            #endif
            case let number as Int: self = .number(Decimal(number))
            case let bool as Bool: self = .bool(bool)
            case let number as Double: self = .number(Decimal(number))
            default: self = .null
            }
        }
    }
}

/// Reads and writes JSON for storage and requests.
enum JSON {
    static func value<Value: Decodable>(_ type: Value.Type, _ text: some Sequence<UInt8>) throws -> Value {
        try JSONDecoder().decode(type, from: Data(text))
    }

    /// The text, with the members of objects sorted by name.
    ///
    /// `<` is written as `\u003c`, as the server removes everything that looks like a tag from token info.
    static func text(_ value: some Encodable) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        guard let data = try? encoder.encode(value) else { preconditionFailure("all values of this library are JSON") }
        // It can only be part of a string.
        return String(decoding: data, as: UTF8.self).replacing("<", with: #"\u003c"#)
    }
}
