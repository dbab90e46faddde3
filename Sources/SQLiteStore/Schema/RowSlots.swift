/// The slots of the table of tokens, which are its rowids.
///
/// A row lies in one of `count` slots that follow one another; 38 bits of a keyed hash of its id say where they begin. So it
/// is found with one walk down one tree. In a store of ten million tokens some 200 pairs of them share their slots, and then
/// take two: who looks for a row compares the keys of all rows that lie there, so that a slot that becomes free needs no
/// mark. For all 15 to be taken by chance would need a million million tokens.
///
/// More bits would be longer in the tree's inner pages (sqlite.org/fileformat2.html, section 1.6), of which fewer would then
/// fit into a reader's memory.
enum RowSlots {
    static let count: Int64 = 15

    /// The first slot of the rows with a hash; above 0.
    ///
    /// - Parameter hash: As evenly spread as a keyed hash, of 5 bytes or more; missing ones count as 0.
    static func first(of hash: [UInt8]) -> Int64 {
        var number: Int64 = 0
        for index in 0..<5 { number = number << 8 | Int64(index < hash.count ? hash[index] : 0) }
        // In the order of the hashes, so that rows that come in their order are appended.
        return (number >> 2) << 4 | 1
    }

    /// Whether a row may lie in a slot.
    static func contains(_ slot: Int64, from first: Int64) -> Bool {
        slot >= first && slot - first < count
    }

    /// In SQL, the slots from that of a parameter on.
    static func condition(_ parameter: String) -> String {
        "slot BETWEEN \(parameter) AND \(parameter) + \(count - 1)"
    }
}
