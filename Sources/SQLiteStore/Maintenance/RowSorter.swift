internal import TokenStore

/// Puts the rows of a store that is converted into the order of their slots, with few of them in memory.
///
/// A conversion reads rows in the order of one key's hashes and writes them in that of another key's. Written as they are
/// read, nearly each row would cost a page that is read, changed and written again as soon as the database is larger than
/// the memory. So rows are first distributed over files by the beginning of their hashes. The rows of one file are then few
/// enough to be sorted in memory, and the database's pages are filled one after the other.
///
/// Each row is written once and read once more than without files.
struct RowSorter {
    /// Approximate bytes of rows that are sorted and returned together.
    private let batchBytes: Int
    /// Those that are not yet read to their end.
    private var files: [RowFile]
    /// All rows, if they are few and need no files.
    private var rows: [Row] = []

    /// The most files, so that their buffers and descriptors stay few.
    ///
    /// If one has more rows than a batch, these are sorted batch by batch.
    private static let mostFiles = 512
    /// Approximate bytes of a row in memory besides its value.
    private static let bytesBesideValue = 300

    /// - Parameters:
    ///   - count: Expected number of rows.
    ///   - bytes: Expected bytes of their values.
    ///   - path: Where the files are made; they have this name for an instant only.
    ///   - isSecret: Whether the files are overwritten when they are no longer needed, as far as the disk overwrites in place.
    ///   - batchBytes: Approximate bytes of rows in memory.
    init(
        of count: Int, bytes: Int, at path: String, isSecret: Bool, batchBytes: Int
    ) throws(SQLiteError) {
        self.batchBytes = batchBytes
        let size = bytes + count * Self.bytesBesideValue
        var files: [RowFile] = []
        if size > batchBytes {
            // About half a batch each, as some get more rows than others.
            for _ in 0..<min(Self.mostFiles, 2 * size / batchBytes + 1) {
                files.append(try RowFile(at: path, isSecret: isSecret))
            }
        }
        self.files = files
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

    /// Removes some rows and returns them in the order of their slots, after those of the batch before; nil at the end.
    ///
    /// - Parameter index: The key that the rows' hashes were made with.
    mutating func nextBatch(index: ObjectIdentifier) throws(SQLiteError) -> [Row]? {
        var bytes = 0
        while rows.isEmpty, let file = files.first {
            while bytes < batchBytes, let row = try file.next(index: index) {
                rows.append(row)
                bytes += row.value.count + Self.bytesBesideValue
            }
            if bytes < batchBytes { files.removeFirst().discard() }
        }
        guard !rows.isEmpty else { return nil }
        defer { rows = [] }
        return rows.sorted { $0.key.firstSlot < $1.key.firstSlot }
    }
}
