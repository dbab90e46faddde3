import TestSupport
import Testing

@testable import SQLiteStore

@Suite struct DuplicateTokensTests {
    @Test func `rows with the key of an earlier row near by are counted`() {
        var generator = SeededGenerator(seed: 23)
        for _ in 0..<200 {
            // Few keys, and slots that are close together or far apart.
            var slot = Int64.min
            var rows: [(slot: Int64, key: [UInt8])] = []
            for _ in 0..<40 {
                slot +=
                    Bool.random(using: &generator)
                    ? .random(in: 1...3, using: &generator) : .random(in: 10...20, using: &generator)
                rows.append((slot, [.random(in: 0...4, using: &generator)]))
            }
            var duplicates = DuplicateTokens()
            for row in rows { duplicates.look(at: row) }
            let expected = rows.filter { row in
                rows.contains { $0.key == row.key && $0.slot < row.slot && row.slot - $0.slot < RowSlots.count }
            }
            #expect(duplicates.count == expected.count)
            #expect((duplicates.damage == nil) == expected.isEmpty)
        }
    }
}
