/// The slots of the table of tokens, which are its rowids (INTEGER PRIMARY KEY).
///
/// A row lies in one of `count` consecutive slots, which begin at 38 bits of a keyed hash of its id. So one descent in
/// one B-tree finds it. Lookups compare the keys of all rows in these slots, so a freed slot needs no mark. In a store
/// of ten million tokens some 200 pairs share their first slot; for all 15 slots to be taken by chance, a store would
/// need some 10^12 tokens.
///
/// More bits would make the B-tree's inner pages larger (sqlite.org/fileformat2.html, section 1.6), and fewer of them
/// would fit into a reader's cache.
enum RowSlots {
    static let count: Int64 = 15

    /// The first slot of the rows with a hash; above 0.
    ///
    /// - Parameter prefix: The first 8 bytes of the hash; see `RowKey.hashPrefix`.
    static func first(of prefix: UInt64) -> Int64 {
        // Slots are in the order of the hashes, so that sorted rows are appended.
        Int64(prefix >> 26) << 4 | 1
    }

    /// Whether a row may lie in a slot.
    static func contains(_ slot: Int64, from first: Int64) -> Bool {
        slot >= first && slot - first < count
    }

    /// An SQL condition for the slots from a parameter on.
    static func condition(_ parameter: String) -> String {
        "slot BETWEEN \(parameter) AND \(parameter) + \(count - 1)"
    }
}
