/// Finds tokens that are there twice: rows with the same key, among rows that come in the order of their slots.
///
/// A look at all rows finds them on its way. A join would make SQLite build an index of all keys in a temporary file
/// (sqlite.org/optoverview.html, "Automatic Query-Time Indexes"), with a gigabyte for 25 million tokens.
struct DoubledTokens {
    /// How many rows have the key of an earlier one.
    private(set) var count = 0
    /// The rows in whose slots the next row could lie as well.
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
