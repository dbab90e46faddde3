internal import TokenStore

/// Puts the rows of a store that is converted into the order of their slots, with few of them in memory.
///
/// The slot of a row is a hash with a key, and the two databases have different keys. So the order in which rows are read from the
/// old database is a random one in the new database: if each were written at once, nearly every row would change a page of its own,
/// and a database that does not fit in memory would read and write a whole page for each row. Instead, rows are first distributed
/// over files by the first bits of their slots. Then one file at a time is sorted in memory and written, page after page.
///
/// The price is that each row is written and read once more.
struct RowSorter {
    /// Approximate bytes of rows that are sorted and returned together.
    private let batchBytes: Int
    /// The files with rows that are still to be returned, in the order of their slots.
    private var files: [RowFile] = []
    /// The rows of the next batch; all rows, if no files are needed.
    private var rows: [Row] = []

    /// The most files, so that their buffers and descriptors stay few.
    ///
    /// In a very large store, a file has more rows than a batch. Little is lost then, because all of its batches change the same
    /// small part of the database.
    private static let mostFiles = 128
    /// Approximate bytes of a row in memory besides its key and value.
    private static let bytesBesideContent = 300
    /// A small row takes this many times as much space in memory as in the database.
    private static let memoryFactor = 4
    /// Larger than any real database, though a sparse file may claim to be larger still.
    private static let largestDatabase = 1 << 50

    /// - Parameters:
    ///   - bytes: The size of the database that the rows come from.
    ///   - path: Where the files are created; each is unlinked at once.
    ///   - isSecret: Whether the files are overwritten at the end, as far as the disk overwrites in place.
    ///   - batchBytes: Approximate bytes of the rows of one batch in memory.
    init(
        ofDatabase bytes: Int, at path: String, isSecret: Bool, batchBytes: Int
    ) throws(SQLiteError) {
        self.batchBytes = batchBytes
        let size = min(bytes, Self.largestDatabase) * Self.memoryFactor
        guard size > batchBytes else { return }
        // About half a batch each, as some get more rows than others.
        for _ in 0..<min(Self.mostFiles, 2 * size / batchBytes + 1) {
            files.append(try RowFile(at: path, isSecret: isSecret))
        }
    }

    /// Takes a row.
    mutating func add(_ row: Row) throws(SQLiteError) {
        guard !files.isEmpty else {
            rows.append(row)
            return
        }
        // Files follow one another in the order of the hashes, which is that of the slots.
        let file = row.key.hashPrefix.multipliedFullWidth(by: UInt64(files.count)).high
        try files[Int(file)].append(row)
    }

    /// Removes a batch of rows and returns it in the order of their slots; nil at the end.
    ///
    /// Batches follow one another in that order too, unless a file has more rows than one batch.
    ///
    /// - Parameter index: The key that the rows' hashes were made with.
    mutating func nextBatch(index: ObjectIdentifier) throws(SQLiteError) -> [Row]? {
        var bytes = 0
        while rows.isEmpty, let file = files.first {
            while bytes < batchBytes, let row = try file.next(index: index) {
                rows.append(row)
                bytes += row.key.bytes.count + row.value.count + Self.bytesBesideContent
            }
            if bytes < batchBytes { files.removeFirst() }
        }
        guard !rows.isEmpty else { return nil }
        defer { rows = [] }
        return rows.sorted { $0.key.firstSlot < $1.key.firstSlot }
    }
}
