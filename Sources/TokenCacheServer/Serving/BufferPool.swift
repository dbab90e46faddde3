/// Receive and send buffers that a loop's connections take turns with, so that an idle connection holds none.
///
/// Belongs to one loop's thread.
struct BufferPool {
    /// What a buffer can hold before it has to grow.
    static let bufferSize = 16 << 10
    /// Buffers that wait to be used; beyond it they are freed.
    private static let limit = 64

    private var spare: [[UInt8]] = []

    /// An empty buffer with at least `bufferSize` bytes of room.
    mutating func take() -> [UInt8] {
        if let buffer = spare.popLast() { return buffer }
        var buffer: [UInt8] = []
        buffer.reserveCapacity(Self.bufferSize)
        return buffer
    }

    /// Takes a buffer back and leaves none in its place.
    ///
    /// Others than the usual size are freed.
    mutating func give(_ buffer: inout [UInt8]) {
        guard buffer.capacity > 0 else { return }
        let isUsual = (Self.bufferSize...2 * Self.bufferSize).contains(buffer.capacity)
        if isUsual && spare.count < Self.limit {
            buffer.removeAll(keepingCapacity: true)
            spare.append(buffer)
        }
        buffer = []
    }
}
