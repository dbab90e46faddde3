extension TokenInformation {
    /// A JSON value (RFC 8259), for the keys that this library does not know.
    public indirect enum Value: Sendable, Hashable {
        /// `null`
        case null
        /// `true` or `false`
        case bool(Bool)
        /// A number as it was written, so that writing it back loses no digits.
        case number(String)
        /// A string, without its quotes and escapes.
        case string(String)
        /// An array.
        case array([Value])
        /// An object; of several members with one name, the last.
        case object([String: Value])

        /// The string's text; nil for every other kind.
        public var string: String? {
            if case .string(let text) = self { text } else { nil }
        }
    }
}
