/// Stands for a session's secret in the memory of the server: a hash of it, from which the secret cannot be found.
///
/// `StoreHandle.sessionKey` makes it. It is the same in a copy of the store, whatever seals that.
package struct SessionKey: Hashable, Sendable {
    /// Bytes of a key.
    package static let length = 32

    private let first: UInt64
    private let second: UInt64
    private let third: UInt64
    private let fourth: UInt64

    /// - Parameter bytes: Exactly `length` bytes.
    package init(_ bytes: Span<UInt8>) {
        precondition(bytes.count == Self.length, "a session's key has 32 bytes")
        func word(_ start: Int) -> UInt64 {
            var word: UInt64 = 0
            for index in start..<(start + 8) { word = word << 8 | UInt64(bytes[index]) }
            return word
        }
        (first, second, third, fourth) = (word(0), word(8), word(16), word(24))
    }

    /// The bytes that it was made of.
    package var bytes: [UInt8] {
        [first, second, third, fourth].flatMap { word in
            stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: word >> UInt64($0)) }
        }
    }

    /// The bytes are evenly distributed already.
    package func hash(into hasher: inout Hasher) {
        hasher.combine(first)
    }
}
