internal import System

/// How large the WAL may grow without taking the space that its checkpoint needs on the disk.
///
/// A checkpoint copies the WAL's pages into the database, which may grow by as much as the WAL contains. If the WAL has used up
/// all free space, the checkpoint fails, and the WAL cannot be truncated either. From then on nothing can be stored until
/// somebody frees some space.
struct WALRoom {
    /// The smallest limit, in bytes.
    ///
    /// Checkpoints of a smaller WAL would cost more than the space that they free is worth.
    private static let least = 256 << 10

    /// The size of the WAL in bytes at which it must be checkpointed; `Int.max` if the free space is unknown.
    let limit: Int

    /// - Parameters:
    ///   - free: The free space on the disk in bytes; nil if it is unknown.
    ///   - file: The length of the WAL's file in bytes. The WAL overwrites the file up to its end before it makes it longer.
    init(free: Int?, file: Int) {
        guard let free else {
            limit = .max
            return
        }
        // Up to the end of its file, the WAL needs free space for the database only; beyond that, for itself as well.
        limit = max(Self.least, free <= file ? free : file + (free - file) / 2)
    }

    /// Looks up the free space on the disk of a database, and the length of its WAL's file.
    init(ofDatabase path: String) {
        let file = FileIdentity.find(path + "-wal")?.size ?? 0
        self.init(free: FileSystem(of: path).freeBytes, file: Int(clamping: file))
    }
}
