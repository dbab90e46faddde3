/// The members of one JSON object (RFC 8259), each of them once.
///
/// A repeated name is refused, as RFC 7515 (section 4) and RFC 7519 (section 4) allow: two readers of which each takes another
/// one of the values would judge two different tokens.
package struct JSONObject {
    package enum Value {
        case string([UInt8])
        /// The number's text, for example `17.5`.
        case number([UInt8])
        /// Where the object's text is, from brace to brace.
        case object(Range<Int>)
        /// Where the array's text is, from bracket to bracket.
        case array(Range<Int>)
        case null
        /// true or false.
        case other
    }

    private var members: [Member] = []

    private struct Member {
        let name: [UInt8]
        let value: Value
        /// Where the value's text is.
        let range: Range<Int>
    }

    /// Reads a text that is one object; nil if it is not UTF-8, or as below.
    ///
    /// - Parameters:
    ///   - text: The whole text.
    ///   - memberLimit: How many members it may have at most; those of objects inside it do not count.
    package init?(_ text: Span<UInt8>, memberLimit: Int) {
        guard (try? UTF8Span(validating: text)) != nil else { return nil }
        self.init(text, 0..<text.count, memberLimit: memberLimit)
    }

    /// Reads an object inside a text that has been validated; nil if it is not JSON, not an object or nested too deeply, or if it has
    /// a member twice or too many of them.
    ///
    /// - Parameters:
    ///   - text: The text that `Value.object` belongs to.
    ///   - range: The object, which white space may surround.
    ///   - memberLimit: How many members it may have at most.
    package init?(_ text: Span<UInt8>, _ range: Range<Int>, memberLimit: Int) {
        var cursor = JSONCursor(position: range.lowerBound, end: range.upperBound)
        var names: Set<[UInt8]> = []
        var members: [Member] = []
        do throws(JSONCursor.Malformed) {
            cursor.skipSpace(text)
            try cursor.expect(UInt8(ascii: "{"), text)
            try cursor.forEachMember(text) { (name, cursor) throws(JSONCursor.Malformed) in
                guard members.count < memberLimit, names.insert(name).inserted else { throw JSONCursor.Malformed() }
                let start = cursor.position
                let value = try Self.value(text, &cursor)
                members.append(Member(name: name, value: value, range: start..<cursor.position))
            }
            cursor.skipSpace(text)
        } catch {
            return nil
        }
        guard cursor.isAtEnd else { return nil }
        self.members = members
    }

    private static func value(
        _ text: Span<UInt8>, _ cursor: inout JSONCursor
    ) throws(JSONCursor.Malformed) -> Value {
        let (start, first) = (cursor.position, cursor.peek(text))
        if first == UInt8(ascii: "\"") { return .string(try cursor.string(text)) }
        try cursor.skipValue(text, depth: 1)
        let range = start..<cursor.position
        switch first {
        case UInt8(ascii: "{"): return .object(range)
        case UInt8(ascii: "["): return .array(range)
        case UInt8(ascii: "n"): return .null
        case UInt8(ascii: "t"), UInt8(ascii: "f"): return .other
        default: return .number(text.bytes(range))
        }
    }

    /// The value of a member; nil if there is none of that name.
    package subscript(name: String) -> Value? {
        members.first { $0.name.elementsEqual(name.utf8) }?.value
    }

    /// The text of a member; nil if it is missing or not a string.
    package func text(_ name: String) -> String? {
        if case .string(let bytes) = self[name] { String(decoding: bytes, as: UTF8.self) } else { nil }
    }

    /// The digits of a member; nil if it is missing or not a number.
    package func number(_ name: String) -> String? {
        if case .number(let digits) = self[name] { String(decoding: digits, as: UTF8.self) } else { nil }
    }

    /// Whether there is a member of that name, whatever its value.
    package func has(_ name: String) -> Bool { self[name] != nil }

    /// The object without the members that are null.
    package var withoutNulls: JSONObject {
        var object = self
        object.members.removeAll { if case .null = $0.value { true } else { false } }
        return object
    }

    /// The names of all members, in their order.
    package var names: [[UInt8]] { members.map(\.name) }

    /// Where the members' values are in the text, in the order of the names.
    package var ranges: [Range<Int>] { members.map(\.range) }

    // MARK: - Arrays

    /// The strings of an array; nil if it has an element of another kind or more elements than the limit.
    package static func strings(_ text: Span<UInt8>, _ array: Range<Int>, limit: Int) -> [[UInt8]]? {
        var strings: [[UInt8]] = []
        let isRead = forEachElement(text, array) { (cursor) throws(JSONCursor.Malformed) in
            guard strings.count < limit else { throw JSONCursor.Malformed() }
            strings.append(try cursor.string(text))
        }
        return isRead ? strings : nil
    }

    /// Where the objects of an array are, with nil for elements of another kind.
    package static func objects(_ text: Span<UInt8>, _ array: Range<Int>) -> [Range<Int>?] {
        var objects: [Range<Int>?] = []
        _ = forEachElement(text, array) { (cursor) throws(JSONCursor.Malformed) in
            let (start, isObject) = (cursor.position, cursor.peek(text) == UInt8(ascii: "{"))
            try cursor.skipValue(text, depth: 1)
            objects.append(isObject ? start..<cursor.position : nil)
        }
        return objects
    }

    private static func forEachElement(
        _ text: Span<UInt8>, _ array: Range<Int>, _ read: (inout JSONCursor) throws(JSONCursor.Malformed) -> Void
    ) -> Bool {
        var cursor = JSONCursor(position: array.lowerBound, end: array.upperBound)
        do {
            try cursor.expect(UInt8(ascii: "["), text)
            try cursor.forEachElement(text, read)
            return true
        } catch {
            return false
        }
    }
}

extension Span<UInt8> {
    /// A copy of some of the bytes.
    package func bytes(_ range: Range<Int>) -> [UInt8] {
        let part = extracting(range)
        return [UInt8](capacity: part.count) { output in
            for index in part.indices { output.append(part[index]) }
        }
    }
}
