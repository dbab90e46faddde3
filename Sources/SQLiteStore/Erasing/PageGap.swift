/// The unused space of a B-tree's page, between its cell pointers and its cells (sqlite.org/fileformat2.html, section 1.6).
///
/// `secure_delete` overwrites the cells that are removed. But when SQLite distributes the cells of neighbouring pages anew,
/// the space of a cell that has moved to another page keeps its bytes until another cell takes it (rebuildPage in its
/// btree.c): of 20,000 rows in random order, 40 had such a copy.
struct PageGap {
    /// The gap; empty if the page is none of a B-tree.
    let range: Range<Int>

    /// - Parameters:
    ///   - page: The whole page.
    ///   - pageNumber: Its number, from 1.
    init(of page: Span<UInt8>, pageNumber: Int) {
        // The first page has the database's header.
        let head = pageNumber == 1 ? 100 : 0
        let cellPointers: Int
        switch page[head] {
        case 0x02, 0x05: cellPointers = head + 12
        case 0x0a, 0x0d: cellPointers = head + 8
        default:
            range = 0..<0
            return
        }
        let start = cellPointers + 2 * Self.number(page, at: head + 3)
        let contents = Self.number(page, at: head + 5)
        // 0 stands for 65,536.
        let end = contents == 0 ? 65_536 : contents
        guard start <= end, end <= page.count else {
            range = 0..<0
            return
        }
        // No cell may lie in what is taken for a gap.
        for pointer in stride(from: cellPointers, to: start, by: 2) where Self.number(page, at: pointer) < end {
            range = 0..<0
            return
        }
        range = start..<end
    }

    private static func number(_ page: Span<UInt8>, at offset: Int) -> Int {
        Int(page[offset]) << 8 | Int(page[offset + 1])
    }

    /// Whether bytes of former cells are in the gap.
    func isDirty(in page: Span<UInt8>) -> Bool {
        for index in range where page[index] != 0 { return true }
        return false
    }
}
