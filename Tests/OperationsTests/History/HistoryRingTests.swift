import TestSupport
import Testing

@testable import Operations

struct HistoryRingTests {
    /// What a ring keeps, without its arithmetic.
    private struct Model {
        var rows: [(position: UInt32, values: [Float])] = []

        func rows(from position: UInt32, limit: Int) -> HistoryRing.Rows {
            let found = rows.filter { $0.position >= position }
            let first = found.prefix(limit)
            return HistoryRing.Rows(
                positions: first.map(\.position), values: first.flatMap(\.values), isCut: found.count > limit)
        }
    }

    @Test(arguments: 1...40)
    func `a ring keeps the last rows, whatever their gaps`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let (width, capacity) = (Int.random(in: 1...4, using: &generator), Int.random(in: 1...20, using: &generator))
        var (ring, model) = (HistoryRing(width: width, capacity: capacity), Model())
        #expect(ring.last == nil && ring.rows(from: 0, limit: 10) == HistoryRing.Rows())
        var position = UInt32.random(in: 0...100, using: &generator)
        for _ in 0..<Int.random(in: 1...70, using: &generator) {
            let row = (0..<width).map { _ in Float(Int.random(in: -9...9, using: &generator)) }
            ring.append(row, at: position)
            model.rows = (model.rows + [(position, row)]).suffix(capacity)
            #expect(ring.count == model.rows.count && ring.last == position)
            let from = UInt32.random(in: 0...position + 2, using: &generator)
            let limit = Int.random(in: 0...capacity + 2, using: &generator)
            #expect(ring.rows(from: from, limit: limit) == model.rows(from: from, limit: limit))
            position += UInt32.random(in: 1...5, using: &generator)
        }
        #expect(ring.rows(from: 0, limit: capacity) == model.rows(from: 0, limit: capacity))
    }
}
