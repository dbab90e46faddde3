/// The last rows of figures, in a fixed amount of memory.
///
/// Row by row in one array, so that a young history uses few pages of memory.
struct HistoryRing: Sendable {
    /// The number of figures in a row.
    let width: Int
    /// The number of rows that are kept.
    let capacity: Int
    private var positions: [UInt32] = []
    private var values: [Float] = []
    /// Where the oldest row is.
    private var start = 0

    /// Rows in the order of their positions.
    struct Rows: Equatable, Sendable {
        var positions: [UInt32] = []
        /// Row by row.
        var values: [Float] = []
        /// Whether more rows come after these.
        var isCut = false
    }

    init(width: Int, capacity: Int) {
        precondition(width > 0 && capacity > 0, "a ring has room for a row")
        self.width = width
        self.capacity = capacity
        // Reserved memory costs nothing before it is written.
        positions.reserveCapacity(capacity)
        values.reserveCapacity(width * capacity)
    }

    /// The bytes that a full ring takes.
    var largestSize: Int { capacity * (MemoryLayout<UInt32>.size + width * MemoryLayout<Float>.size) }

    var count: Int { positions.count }

    /// The position of the newest row.
    var last: UInt32? { count == 0 ? nil : positions[place(count - 1)] }

    /// Appends a row, in the place of the oldest one if the ring is full.
    ///
    /// - Parameters:
    ///   - row: As many figures as the ring is wide.
    ///   - position: Greater than that of the row before.
    mutating func append(_ row: [Float], at position: UInt32) {
        precondition(row.count == width, "a row has all figures")
        precondition(last.map { $0 < position } ?? true, "rows come in the order of their positions")
        if count < capacity {
            positions.append(position)
            values += row
        } else {
            positions[start] = position
            values.replaceSubrange(start * width..<(start + 1) * width, with: row)
            start = (start + 1) % capacity
        }
    }

    /// The rows from a position on, the oldest first.
    func rows(from position: UInt32, limit: Int) -> Rows {
        let first = firstIndex(from: position)
        let end = min(count, first + limit)
        var rows = Rows(isCut: end < count)
        for index in first..<end {
            let place = place(index)
            rows.positions.append(positions[place])
            rows.values += values[place * width..<(place + 1) * width]
        }
        return rows
    }

    /// Where a row is stored, by the number of older rows that are kept.
    private func place(_ index: Int) -> Int { (start + index) % positions.count }

    /// The index of the first row that is not before a position, by binary search.
    private func firstIndex(from position: UInt32) -> Int {
        var range = 0..<count
        while !range.isEmpty {
            let middle = (range.lowerBound + range.upperBound) / 2
            range =
                positions[place(middle)] < position
                ? middle + 1..<range.upperBound : range.lowerBound..<middle
        }
        return range.lowerBound
    }
}
