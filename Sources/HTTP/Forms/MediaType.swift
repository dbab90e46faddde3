/// The kind of body that a request's Content-Type announces.
package enum MediaType: Hashable, Sendable {
    case urlEncodedForm
    /// With the boundary's bytes; nil if it is missing or its quote is not closed.
    case multipartForm(boundary: [UInt8]?)
    case json
    case other

    /// Reads a Content-Type value as PHP does: the type ends at the first `;`, `,` or space, in any case; the boundary is
    /// what follows `boundary` and the next `=`, quoted or up to the next `;` or `,`.
    package init(_ value: ByteRange, of bytes: Span<UInt8>) {
        var typeEnd = Int(value.start)
        while typeEnd < Int(value.end) {
            let byte = bytes[typeEnd]
            if byte == UInt8(ascii: ";") || byte == UInt8(ascii: ",") || byte == .space { break }
            typeEnd += 1
        }
        let type = ByteRange(Int(value.start), typeEnd)
        if bytes.equalsIgnoringCase(type, Types.urlEncoded) {
            self = .urlEncodedForm
        } else if bytes.equalsIgnoringCase(type, Types.multipart) {
            self = .multipartForm(boundary: Self.boundary(in: value, of: bytes))
        } else if bytes.equalsIgnoringCase(type, Types.json) {
            self = .json
        } else {
            self = .other
        }
    }

    private static func boundary(in value: ByteRange, of bytes: Span<UInt8>) -> [UInt8]? {
        let end = Int(value.end)
        var index = Int(value.start)
        while !bytes.hasPrefix(Types.boundary, in: index..<end) {
            index += 1
            guard index < end else { return nil }
        }
        guard let equals = bytes.firstIndex(of: UInt8(ascii: "="), in: index..<end) else { return nil }
        var start = equals + 1
        if start < end && bytes[start] == UInt8(ascii: "\"") {
            start += 1
            guard let quote = bytes.firstIndex(of: UInt8(ascii: "\""), in: start..<end) else { return nil }
            return [UInt8](ByteRange(start, quote), in: bytes)
        }
        var last = start
        while last < end && bytes[last] != UInt8(ascii: ";") && bytes[last] != UInt8(ascii: ",") { last += 1 }
        return [UInt8](ByteRange(start, last), in: bytes)
    }

    private enum Types {
        static let urlEncoded: StaticString = "application/x-www-form-urlencoded"
        static let multipart: StaticString = "multipart/form-data"
        static let json: StaticString = "application/json"
        static let boundary: StaticString = "boundary"
    }
}
