/// An interior page of a B-tree, which leads to other pages (sqlite.org/fileformat2.html, section 1.6).
struct InteriorPage {
    /// The numbers of the pages below it, ascending.
    let children: [Int]

    /// - Parameters:
    ///   - page: The whole page.
    ///   - number: Its number, from 1.
    /// - Returns: Nil if it is no sound interior page.
    init?(_ page: Span<UInt8>, number: Int) {
        // The first page begins with the database's header.
        let start = number == 1 ? 100 : 0
        let pointers = start + 12
        guard page.count >= pointers, page[start] == 0x02 || page[start] == 0x05 else { return nil }
        let cells = Int(page[start + 3]) << 8 | Int(page[start + 4])
        guard pointers + 2 * cells <= page.count else { return nil }
        var children = [Self.number(page, at: start + 8)]
        children.reserveCapacity(cells + 1)
        for pointer in stride(from: pointers, to: pointers + 2 * cells, by: 2) {
            let cell = Int(page[pointer]) << 8 | Int(page[pointer + 1])
            guard cell + 4 <= page.count else { return nil }
            children.append(Self.number(page, at: cell))
        }
        // No page has the number 0, so this page is damaged.
        guard !children.contains(0) else { return nil }
        self.children = children.sorted()
    }

    private static func number(_ page: Span<UInt8>, at offset: Int) -> Int {
        (0..<4).reduce(0) { $0 << 8 | Int(page[offset + $1]) }
    }

    /// The children, with consecutive numbers joined into ranges.
    var runs: [Range<Int>] {
        var runs: [Range<Int>] = []
        for child in children {
            if let last = runs.last, child <= last.upperBound {
                runs[runs.count - 1] = last.lowerBound..<max(last.upperBound, child + 1)
            } else {
                runs.append(child..<(child + 1))
            }
        }
        return runs
    }
}
