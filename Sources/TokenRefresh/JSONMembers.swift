#if TokenRefresh
import JSON

/// A JSON object with its text, so that some members can be changed while all other bytes stay.
struct JSONMembers: Sendable {
    private let text: [UInt8]
    private let members: [(name: [UInt8], value: Range<Int>)]

    /// Nil if the text is not one JSON object, or has a name twice.
    init?(_ text: [UInt8]) {
        guard let object = JSONObject(text.span, memberLimit: .max) else { return nil }
        (self.text, members) = (text, Array(zip(object.names, object.ranges)))
    }

    /// Reads whatever some reader could take for an object, in order to remove members that nobody may see.
    ///
    /// Names may repeat, and values are not checked. Nil if no reader would take the text for an object.
    init?(ofAnyReader text: [UInt8]) {
        var cursor = JSONCursor(position: 0, end: text.count)
        cursor.skipSpace(text.span)
        guard cursor.accept(UInt8(ascii: "{"), text.span) else { return nil }
        var members: [(name: [UInt8], value: Range<Int>)] = []
        var (name, colon, end, depth): ([UInt8]?, Int?, Int, Int) = (nil, nil, cursor.position, 0)
        while let byte = cursor.peek(text.span) {
            let start = cursor.position
            cursor.position += 1
            switch byte {
            case UInt8(ascii: "\""):
                while let next = cursor.peek(text.span), next != byte {
                    cursor.position += next == UInt8(ascii: "\\") ? 2 : 1
                }
                guard cursor.accept(byte, text.span) else { return nil }
                if name == nil {
                    var quoted = JSONCursor(position: start, end: cursor.position)
                    name = (try? quoted.string(text.span)) ?? []
                }
            case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
            case UInt8(ascii: "}") where depth == 0, UInt8(ascii: ",") where depth == 0:
                if let name, let colon { members.append((name, colon..<end)) }
                guard byte == UInt8(ascii: ",") else {
                    (self.text, self.members) = (text, members)
                    return
                }
                (name, colon) = (nil, nil)
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            case UInt8(ascii: ":") where colon == nil: colon = cursor.position
            default: break
            }
            if byte > 0x20 { end = cursor.position }
        }
        return nil
    }

    var names: [String] { members.map { String(decoding: $0.name, as: UTF8.self) } }

    /// The text of a member's value; nil if there is none of that name.
    func value(_ name: String) -> [UInt8]? {
        members.first { $0.name.elementsEqual(name.utf8) }.map { Array(text[$0.value]) }
    }

    /// A string without its escapes; nil if it is empty, missing or no string.
    func string(_ name: String) -> [UInt8]? {
        guard let value = value(name) else { return nil }
        var cursor = JSONCursor(position: 0, end: value.count)
        guard let string = try? cursor.string(value.span), !string.isEmpty else { return nil }
        return string
    }

    /// A number without its fraction, also one in a string, as some servers write it; nil if it is negative or no number.
    func number(_ name: String) -> Int64? {
        guard let digits = string(name) ?? value(name), let number = Double(String(decoding: digits, as: UTF8.self)),
            number >= 0, number < 1e15
        else { return nil }
        return Int64(number)
    }

    /// The text with changed members.
    ///
    /// Adding a member and removing it again gives the same text as before.
    ///
    /// - Parameter changes: The members' names and their new values as JSON; nil removes a member. New members are added at the end.
    func text(with changes: [(name: String, value: [UInt8]?)]) -> [UInt8] {
        let brace = text.firstIndex(of: UInt8(ascii: "{")) ?? 0
        var (output, end, isEmpty) = (Array(text[...brace]), brace + 1, true)
        func copy(upTo position: Int) {
            var part = text[end..<position]
            // The comma separated the member from those that were removed.
            if isEmpty, end > brace + 1, let comma = part.firstIndex(of: UInt8(ascii: ",")) {
                part = part[(comma + 1)...]
            }
            output += part
            isEmpty = false
        }
        for (name, place) in members {
            if let change = changes.first(where: { name.elementsEqual($0.name.utf8) }) {
                if let value = change.value {
                    copy(upTo: place.lowerBound)
                    output += value
                }
            } else {
                copy(upTo: place.upperBound)
            }
            end = place.upperBound
        }
        for (name, value) in changes where self.value(name) == nil {
            guard let value else { continue }
            output += Array("\(isEmpty ? "" : ",")\"\(name)\":".utf8) + value
            isEmpty = false
        }
        return output + text[end...]
    }
}
#endif
