/// Finds duplicate tokens, which are rows with the same key.
///
/// It must be shown all rows, in the order of their slots.
///
/// A command that reads all rows anyway finds them without another pass. For a join, SQLite would build an index of all
/// keys in a temporary file (sqlite.org/optoverview.html, "Automatic Query-Time Indexes"): a gigabyte for 25 million tokens.
struct DuplicateTokens {
    /// How many rows have the key of an earlier row.
    private(set) var count = 0
    /// The last rows, as far as a duplicate of them could still follow.
    private var near: [(slot: Int64, key: [UInt8])] = []

    /// - Parameter row: The next row.
    mutating func look(at row: (slot: Int64, key: [UInt8])) {
        near.removeAll { !RowSlots.contains(row.slot, from: $0.slot) }
        if near.contains(where: { $0.key == row.key }) { count += 1 }
        near.append(row)
    }

    /// What an operator is told; nil if there are none.
    var damage: String? {
        count == 0 ? nil : "\(count) \(count == 1 ? "token is" : "tokens are") there twice"
    }
}
