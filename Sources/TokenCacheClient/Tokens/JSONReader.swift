internal import Foundation

/// Reads JSON text (RFC 8259).
///
/// It accepts one thing more: control characters inside strings, because the guide's sample client sends its JSON unescaped
/// in a form, whose decoding can put them there.
struct JSONReader {
    /// Why text is not JSON, without any of the text, which may be a secret.
    struct Failure: Error, Equatable {
        let reason: String
        /// Counted in bytes from the beginning.
        let position: Int
    }

    /// Deeper nesting is refused: the reader calls itself for each level.
    private static let depthLimit = 64

    private let bytes: [UInt8]
    private var position = 0

    /// The value that the text consists of.
    static func value(_ text: some Sequence<UInt8>) throws(Failure) -> TokenInformation.Value {
        var reader = JSONReader(bytes: Array(text))
        let value = try reader.value(depth: 0)
        reader.skipSpace()
        guard reader.position == reader.bytes.count else { throw reader.failure("something follows its end") }
        return value
    }

    private init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    private mutating func value(depth: Int) throws(Failure) -> TokenInformation.Value {
        guard depth < Self.depthLimit else { throw failure("it is nested too deeply") }
        skipSpace()
        switch peek() {
        case nil: throw failure("it ends too early")
        case UInt8(ascii: "{"): return try object(depth: depth)
        case UInt8(ascii: "["): return try array(depth: depth)
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return try word("true", .bool(true))
        case UInt8(ascii: "f"): return try word("false", .bool(false))
        case UInt8(ascii: "n"): return try word("null", .null)
        default: return try number()
        }
    }

    private mutating func object(depth: Int) throws(Failure) -> TokenInformation.Value {
        position += 1
        var members: [String: TokenInformation.Value] = [:]
        skipSpace()
        if accept(UInt8(ascii: "}")) { return .object(members) }
        repeat {
            skipSpace()
            guard peek() == UInt8(ascii: "\"") else { throw failure("a member has no name") }
            let name = try string()
            skipSpace()
            guard accept(UInt8(ascii: ":")) else { throw failure("a colon is missing") }
            members[name] = try value(depth: depth + 1)
            skipSpace()
        } while accept(UInt8(ascii: ","))
        guard accept(UInt8(ascii: "}")) else { throw failure("an object is not closed") }
        return .object(members)
    }

    private mutating func array(depth: Int) throws(Failure) -> TokenInformation.Value {
        position += 1
        var elements: [TokenInformation.Value] = []
        skipSpace()
        if accept(UInt8(ascii: "]")) { return .array(elements) }
        repeat {
            elements.append(try value(depth: depth + 1))
            skipSpace()
        } while accept(UInt8(ascii: ","))
        guard accept(UInt8(ascii: "]")) else { throw failure("an array is not closed") }
        return .array(elements)
    }

    private mutating func word(_ text: String, _ value: TokenInformation.Value) throws(Failure)
        -> TokenInformation.Value
    {
        for byte in text.utf8 {
            guard accept(byte) else { throw failure("a word is unknown") }
        }
        return value
    }

    private mutating func number() throws(Failure) -> TokenInformation.Value {
        let start = position
        _ = accept(UInt8(ascii: "-"))
        if !accept(UInt8(ascii: "0")) { try digits() }
        if accept(UInt8(ascii: ".")) { try digits() }
        if accept(UInt8(ascii: "e")) || accept(UInt8(ascii: "E")) {
            _ = accept(UInt8(ascii: "+")) || accept(UInt8(ascii: "-"))
            try digits()
        }
        return .number(String(decoding: bytes[start..<position], as: UTF8.self))
    }

    private mutating func digits() throws(Failure) {
        let start = position
        while let byte = peek(), (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) { position += 1 }
        guard position > start else { throw failure("a value is malformed") }
    }

    // MARK: - Strings

    private mutating func string() throws(Failure) -> String {
        position += 1
        var units: [UInt8] = []
        while let byte = peek() {
            position += 1
            if byte == UInt8(ascii: "\"") {
                guard let text = String(data: Data(units), encoding: .utf8) else { throw failure("it is not UTF-8") }
                return text
            }
            if byte == UInt8(ascii: "\\") {
                units.append(contentsOf: String(try escape()).utf8)
            } else {
                units.append(byte)
            }
        }
        throw failure("a string is not closed")
    }

    private mutating func escape() throws(Failure) -> Unicode.Scalar {
        guard let letter = peek() else { throw failure("it ends too early") }
        position += 1
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(letter)
        case UInt8(ascii: "b"): return "\u{08}"
        case UInt8(ascii: "f"): return "\u{0c}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"): break
        default: throw failure("an escape is unknown")
        }
        let unit = try codeUnit()
        if let scalar = Unicode.Scalar(unit) { return scalar }
        // Half of a surrogate pair: alone, it is no character.
        let start = position
        guard unit < 0xdc00, accept(UInt8(ascii: "\\")), accept(UInt8(ascii: "u")) else {
            position = start
            return "\u{fffd}"
        }
        let low = try codeUnit()
        guard (0xdc00...0xdfff).contains(low) else {
            position = start
            return "\u{fffd}"
        }
        return Unicode.Scalar(0x10000 + (UInt32(unit) - 0xd800) << 10 + UInt32(low) - 0xdc00) ?? "\u{fffd}"
    }

    private mutating func codeUnit() throws(Failure) -> UInt16 {
        var unit: UInt16 = 0
        for _ in 0..<4 {
            guard let byte = peek(), let digit = Character(Unicode.Scalar(byte)).hexDigitValue else {
                throw failure("an escape is malformed")
            }
            unit = unit << 4 | UInt16(digit)
            position += 1
        }
        return unit
    }

    // MARK: - Bytes

    private func peek() -> UInt8? {
        position < bytes.count ? bytes[position] : nil
    }

    private mutating func accept(_ byte: UInt8) -> Bool {
        guard peek() == byte else { return false }
        position += 1
        return true
    }

    private mutating func skipSpace() {
        while let byte = peek(), byte == 0x20 || byte == 0x09 || byte == 0x0a || byte == 0x0d { position += 1 }
    }

    private func failure(_ reason: String) -> Failure {
        Failure(reason: reason, position: position)
    }
}
