/// The methods of RFC 9110, section 9, and RFC 5789; the one list of them.
package enum Method: CaseIterable, Sendable {
    case get, head, post, put, patch, delete, options, trace, connect
    /// Any other, which may be a word of the client's.
    case other

    /// As it stands in a request line; nil for `other`.
    package var name: StaticString? {
        switch self {
        case .get: "GET"
        case .head: "HEAD"
        case .post: "POST"
        case .put: "PUT"
        case .patch: "PATCH"
        case .delete: "DELETE"
        case .options: "OPTIONS"
        case .trace: "TRACE"
        case .connect: "CONNECT"
        case .other: nil
        }
    }

    /// The method of a request line.
    init(_ name: ByteRange, in bytes: Span<UInt8>) {
        // The two that nearly all requests have.
        if bytes.equals(name, "GET") {
            self = .get
        } else if bytes.equals(name, "POST") {
            self = .post
        } else {
            self = Self.allCases.first { $0.name.map { bytes.equals(name, $0) } ?? false } ?? .other
        }
    }
}
