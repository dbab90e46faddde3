/// The lines of one field in a head, which may have several of them (RFC 9110, section 5.3).
///
/// A proxy that adds a line of its own keeps the client's. As there is nearly always only one line, further ones are searched
/// for when they are needed, and take no memory before.
package struct FieldLines: Hashable, Sendable {
    private enum Count {
        case none, one, several
    }

    private var count = Count.none
    /// The value of the only line, or all from the first line's value to the end of the last one's.
    private var range = ByteRange.empty

    /// Whether there is no line.
    package var isEmpty: Bool { count == .none }

    /// The value of the only line; nil if there is none, or several.
    package var only: ByteRange? { count == .one ? range : nil }

    mutating func add(_ value: ByteRange) {
        if count == .none {
            (count, range) = (.one, value)
        } else {
            (count, range.end) = (.several, value.end)
        }
    }

    /// The lines' values, in order.
    ///
    /// - Parameters:
    ///   - name: The field's, in lower case.
    ///   - bytes: The request's bytes.
    func values(named name: StaticString, in bytes: Span<UInt8>) -> [ByteRange] {
        switch count {
        case .none: return []
        case .one: return [range]
        case .several: break
        }
        var values: [ByteRange] = []
        var start = Int(range.start)
        while true {
            let lineFeed = bytes.firstIndex(of: .lineFeed, in: start..<Int(range.end))
            // Before each line feed of a head that was read is a carriage return.
            let line = ByteRange(start, lineFeed.map { $0 - 1 } ?? Int(range.end))
            if values.isEmpty {
                values.append(bytes.trimmed(line))
            } else if let colon = bytes.firstIndex(of: UInt8(ascii: ":"), in: line.indices),
                bytes.equalsIgnoringCase(ByteRange(start, colon), name)
            {
                values.append(bytes.trimmed(ByteRange(colon + 1, Int(line.end))))
            }
            guard let lineFeed else { return values }
            start = lineFeed + 1
        }
    }

    func moved(by distance: Int) -> FieldLines {
        var moved = self
        moved.range = range.moved(by: distance)
        return moved
    }
}
