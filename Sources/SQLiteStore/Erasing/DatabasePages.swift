internal import CSQLite

/// The pages of a database's file, read and written without SQLite, to erase what it leaves of removed rows; see PageGap.
///
/// Used on its connection's thread.
struct DatabasePages {
    private let connection: SQLiteConnection
    private let pageSize: Int
    /// Whether some pages say of the others what they are (sqlite.org/fileformat2.html, section 1.8).
    private let hasPointerMap: Bool

    /// - Parameter connection: To read; also to write, for `erase`.
    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        self.connection = connection
        pageSize = try connection.integer("PRAGMA page_size")
        hasPointerMap = try connection.integer("PRAGMA auto_vacuum") != 0
        // Up to here the number of a page, with which one that holds a part of a long row begins, is none of the bytes with
        // which a page of a B-tree begins.
        guard hasPointerMap || count < 1 << 25 else {
            throw SQLiteError(
                code: SQLITE_TOOBIG, message: "a database of this size must be able to release pages", sql: "erase")
        }
    }

    /// Pages of the file.
    var count: Int { connection.fileSize / pageSize }

    /// The pages of a range with bytes of former cells.
    ///
    /// The file may be written meanwhile: what was there before the call, and still is, is found.
    ///
    /// - Parameter numbers: From 1.
    /// - Returns: Their numbers.
    func dirty(_ numbers: Range<Int>) throws(SQLiteError) -> [Int] {
        var found: [Int] = []
        let together = max(1, (64 << 10) / pageSize)
        for start in stride(from: numbers.lowerBound, to: numbers.upperBound, by: together) {
            let end = min(start + together, numbers.upperBound)
            let bytes = try read(start, count: end - start)
            for number in start..<end where !isPointerMap(number) {
                let offset = (number - start) * pageSize
                let page = bytes.span.extracting(offset..<(offset + pageSize))
                if PageGap(of: page, pageNumber: number).isDirty(in: page) { found.append(number) }
            }
        }
        return found
    }

    /// Overwrites the bytes of former cells in some pages with zeros.
    ///
    /// Nothing may write the database meanwhile, and its WAL must be empty. A crash in between does no harm, as only unused
    /// bytes are written.
    func erase(_ numbers: [Int]) throws(SQLiteError) {
        for number in numbers where try isBTree(number) {
            let page = try read(number, count: 1)
            let gap = PageGap(of: page.span, pageNumber: number)
            guard gap.isDirty(in: page.span) else { continue }
            let zeros = [UInt8](repeating: 0, count: gap.range.count)
            try connection.writeFile(zeros, at: (number - 1) * pageSize + gap.range.lowerBound)
        }
    }

    /// Erases all pages, of a database that nothing else uses.
    func eraseAll() throws(SQLiteError) {
        try erase(try dirty(1..<(count + 1)))
    }

    private func read(_ number: Int, count: Int) throws(SQLiteError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count * pageSize)
        guard connection.readFile(at: (number - 1) * pageSize, into: &bytes) else {
            throw SQLiteError(code: SQLITE_IOERR, message: "the database cannot be read", sql: "erase")
        }
        return bytes
    }

    // MARK: - The pointer map

    /// Bytes of an entry: what a page is, and the number of another page.
    private static let entrySize = 5

    /// The page of the pointer map with the entry of a page, from 2.
    private func pointerMap(of number: Int) -> Int {
        let covered = pageSize / Self.entrySize + 1
        let map = (number - 2) / covered * covered + 2
        // The page at 1 GiB is never used; its place is taken by the next one.
        return map == (1 << 30) / pageSize + 1 ? map + 1 : map
    }

    private func isPointerMap(_ number: Int) -> Bool {
        hasPointerMap && number > 1 && pointerMap(of: number) == number
    }

    private func isBTree(_ number: Int) throws(SQLiteError) -> Bool {
        guard hasPointerMap, number > 1 else { return true }
        let map = pointerMap(of: number)
        guard map < number else { return false }
        let bytes = try read(map, count: 1)
        // The root of a tree, or another page of one.
        let kind = bytes[(number - map - 1) * Self.entrySize]
        return kind == 1 || kind == 5
    }
}
