/// SipHash-2-4 of two numbers under a random key (Aumasson and Bernstein, "SipHash: a fast short-input PRF").
///
/// Without the key, nobody can choose addresses that share a place in a table.
struct SipHash: Sendable {
    private let (first, second): (UInt64, UInt64)

    init(key first: UInt64, _ second: UInt64) {
        (self.first, self.second) = (first, second)
    }

    /// With a key from the system's generator.
    static func random() -> SipHash {
        SipHash(key: .random(in: 0 ... .max), .random(in: 0 ... .max))
    }

    /// The hash of 16 bytes: two numbers in little-endian order.
    func hash(_ left: UInt64, _ right: UInt64) -> UInt64 {
        var state = State(first, second)
        state.absorb(left)
        state.absorb(right)
        // The last block has the message's length in its highest byte.
        state.absorb(16 << 56)
        return state.finish()
    }

    private struct State {
        private var (a, b, c, d): (UInt64, UInt64, UInt64, UInt64)

        init(_ first: UInt64, _ second: UInt64) {
            // "somepseudorandomlygeneratedbytes"
            (a, b) = (first ^ 0x736f_6d65_7073_6575, second ^ 0x646f_7261_6e64_6f6d)
            (c, d) = (first ^ 0x6c79_6765_6e65_7261, second ^ 0x7465_6462_7974_6573)
        }

        mutating func absorb(_ word: UInt64) {
            d ^= word
            for _ in 0..<2 { round() }
            a ^= word
        }

        mutating func finish() -> UInt64 {
            c ^= 0xff
            for _ in 0..<4 { round() }
            return a ^ b ^ c ^ d
        }

        private mutating func round() {
            a &+= b
            c &+= d
            b = Self.rotated(b, 13) ^ a
            d = Self.rotated(d, 16) ^ c
            a = Self.rotated(a, 32)
            c &+= b
            a &+= d
            b = Self.rotated(b, 17) ^ c
            d = Self.rotated(d, 21) ^ a
            c = Self.rotated(c, 32)
        }

        private static func rotated(_ word: UInt64, _ bits: UInt64) -> UInt64 { word << bits | word >> (64 - bits) }
    }
}
