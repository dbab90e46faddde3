internal import TokenStore

/// Puts the rows of a store that is converted into the order of their slots, with few of them in memory.
///
/// A conversion reads rows in the order of one key's hashes and writes them in that of another key's. Written as they are
/// read, nearly each row would cost a page that is read, changed and written again as soon as the database is larger than
/// the memory. So rows are first distributed over files by the beginning of their hashes. The rows of one file are then
/// sorted in memory, and the database's pages are filled one after the other.
///
/// This costs one more write and one more read of each row.
struct RowSorter {
    /// Approximate bytes of rows that are sorted and returned together.
    private let batchBytes: Int
    /// The files with rows that are still to be returned, in the order of their slots.
    private var files: [RowFile] = []
    /// The rows of the next batch; all rows, if no files are needed.
    private var rows: [Row] = []

    /// The most files, so that their buffers and descriptors stay few.
    ///
    /// Some more rows than a batch in each do little harm: the batches of one file change a small part of the database.
    private static let mostFiles = 128
    /// Approximate bytes of a row in memory besides its key and value.
    private static let bytesBesideContent = 300
    /// How many times as much as in its database a small row takes in memory.
    private static let bytesInMemory = 4
    /// Beyond all disks; a sparse file may claim more.
    private static let largestDatabase = 1 << 50

    /// - Parameters:
    ///   - bytes: Of the database that the rows are from.
    ///   - path: At which the files are created; each is unlinked at once.
    ///   - isSecret: Whether the files are overwritten in the end, as far as the disk overwrites in place.
    ///   - batchBytes: Approximate bytes of rows in memory.
    init(
        ofDatabase bytes: Int, at path: String, isSecret: Bool, batchBytes: Int
    ) throws(SQLiteError) {
        self.batchBytes = batchBytes
        let size = min(bytes, Self.largestDatabase) * Self.bytesInMemory
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

    /// Removes some rows and returns them in the order of their slots; nil at the end.
    ///
    /// The next batch follows in that order, unless it is from the same file.
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
