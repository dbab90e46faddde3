internal import System

/// How large the WAL may grow so that its disk has room for the checkpoint.
///
/// A checkpoint copies the WAL's pages into the database, which may become longer by the size of the WAL. If the WAL has taken
/// everything that was free, the checkpoint fails, and so the WAL is never truncated: nothing can be stored any more until
/// somebody frees some space.
struct WALRoom {
    /// The limit is never smaller, in bytes: checkpoints of less would cost more than they give back.
    private static let least = 256 << 10

    /// Bytes of the WAL at which it must be checkpointed; `Int.max` if it is unknown what is free.
    let limit: Int

    /// - Parameters:
    ///   - free: Bytes that are free on the disk; nil if unknown.
    ///   - file: Bytes of the WAL's file, which are overwritten before it takes more of the disk.
    init(free: Int?, file: Int) {
        guard let free else {
            limit = .max
            return
        }
        // Beyond the file's present length, each byte of the WAL also takes one of those that are free.
        limit = max(Self.least, free <= file ? free : file + (free - file) / 2)
    }

    /// Asks the file system that a database is on.
    init(ofDatabase path: String) {
        let file = FileIdentity.find(path + "-wal")?.size ?? 0
        self.init(free: FileSystem(of: path).freeBytes, file: Int(clamping: file))
    }
}
