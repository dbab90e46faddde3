/// Receive and send buffers that a loop's connections share, so that an idle connection holds none.
///
/// Belongs to one loop's thread.
struct BufferPool {
    /// A buffer for each direction.
    struct Pair {
        var input: [UInt8] = []
        var output: [UInt8] = []
    }

    /// Bytes that a buffer holds before it has to grow.
    static let bufferSize = 16 << 10
    /// The most pairs that are kept; further ones are freed.
    private static let limit = 32

    private var spare: [Pair] = []

    /// Two empty buffers with at least `bufferSize` bytes of room each.
    mutating func take() -> Pair {
        if let pair = spare.popLast() { return pair }
        var pair = Pair()
        pair.input.reserveCapacity(Self.bufferSize)
        pair.output.reserveCapacity(Self.bufferSize)
        return pair
    }

    /// Takes two empty buffers back, unless they have another size.
    mutating func give(_ pair: consuming Pair) {
        guard Self.keeps(pair), spare.count < Self.limit else { return }
        spare.append(pair)
    }

    /// Whether a pair has the size that is kept.
    static func keeps(_ pair: borrowing Pair) -> Bool {
        let usual = bufferSize...2 * bufferSize
        return usual.contains(pair.input.capacity) && usual.contains(pair.output.capacity)
    }
}
