internal import HTTP

/// What a request's `unique_id` is, after decoding.
package enum UniqueID: Hashable, Sendable {
    /// The request has no such parameter, or an array in its place.
    case missing
    /// It is empty, or has nothing but tags.
    case empty
    /// It is not UTF-8, holds NUL or is too long.
    case invalid
    /// The text with its tags removed: what is authorized, logged and stored.
    case text([UInt8])

    /// Longest id in bytes, decoded and with tags removed.
    package static let limit = 1024

    /// - Parameters:
    ///   - bytes: The decoded parameter; nil if it is missing.
    ///   - limit: Bytes that the text may have.
    package init(_ bytes: [UInt8]?, limit: Int = Self.limit) {
        guard let bytes else {
            self = .missing
            return
        }
        guard Self.isUTF8(bytes), bytes.span.firstIndex(of: 0, in: 0..<bytes.count) == nil else {
            self = .invalid
            return
        }
        let text = TagRemoval.removeTags(from: bytes)
        self = text.isEmpty ? .empty : text.count > limit ? .invalid : .text(text)
    }

    /// The text; nil if there is none.
    package var text: [UInt8]? {
        if case .text(let text) = self { text } else { nil }
    }

    static func isUTF8(_ bytes: [UInt8]) -> Bool {
        (try? UTF8Span(validating: bytes.span)) != nil
    }
}
