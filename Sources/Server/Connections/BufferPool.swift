/// Receive and send buffers that a loop's connections take turns with, so that an idle connection holds none.
///
/// Belongs to one loop's thread.
struct BufferPool {
    /// What a connection that is not idle has: a buffer for each direction.
    struct Pair {
        var input: [UInt8] = []
        var output: [UInt8] = []
    }

    /// What a buffer can hold before it has to grow.
    static let bufferSize = 16 << 10
    /// Pairs that wait here to be used; beyond it they are freed.
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

    /// Takes two empty buffers back, but for those of another size.
    mutating func give(_ pair: consuming Pair) {
        guard Self.keeps(pair), spare.count < Self.limit else { return }
        spare.append(pair)
    }

    /// Whether a pair is of the size that is kept.
    static func keeps(_ pair: borrowing Pair) -> Bool {
        let usual = bufferSize...2 * bufferSize
        return usual.contains(pair.input.capacity) && usual.contains(pair.output.capacity)
    }
}
