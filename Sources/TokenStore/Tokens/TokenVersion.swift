/// Tells one state of a stored token from every other: it grows with each write of a store.
///
/// The same number is never given twice, not even after a crash, a removal, a restored backup, or a clock that was set back.
/// 0 stands for all tokens that were written before there were versions; the next write of such a token gives it one.
package struct TokenVersion: RawRepresentable, Hashable, Comparable, Sendable, CustomStringConvertible {
    package let rawValue: Int64

    package init(rawValue: Int64) {
        self.rawValue = rawValue
    }

    package static func < (one: TokenVersion, other: TokenVersion) -> Bool {
        one.rawValue < other.rawValue
    }

    package var description: String { "\(rawValue)" }
}
