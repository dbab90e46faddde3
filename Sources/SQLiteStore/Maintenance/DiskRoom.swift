internal import System
internal import TokenStore

/// Refuses what a disk has no room for, before the disk is filled.
enum DiskRoom {
    /// What stays free on the store's own disk, so that a backup there does not keep the server from storing tokens.
    private static let reserve = 16 << 20

    /// Refuses a backup that does not fit.
    ///
    /// - Parameters:
    ///   - bytes: The size of the backup.
    ///   - path: The path of the backup.
    ///   - store: The path of the store's database, whose disk keeps some room free.
    static func check(forBackup bytes: Int, at path: String, besides store: String) throws(StoreError) {
        let folder = Path.folder(of: path)
        guard let target = FileStatus(folder) else { return }
        let isStoreDisk = FileStatus(store)?.identity.device == target.identity.device
        guard let free = freeMebibytes(in: folder, below: bytes + (isStoreDisk ? reserve : 0)) else { return }
        let keptFree = ", and \(mebibytes(reserve)) MiB must stay free for the store on the same disk"
        throw .refused(
            """
            the backup needs \(mebibytes(bytes)) MiB\(isStoreDisk ? keptFree : ""), \
            but only \(free) MiB are free in \(folder); make room, or name a folder on another disk
            """
        )
    }

    /// How many mebibytes are free in a folder, if that is less than what is needed; nil if it is enough or unknown.
    private static func freeMebibytes(in folder: String, below needed: Int) -> Int? {
        guard let free = FileSystem(of: folder).freeBytes, free < needed else { return nil }
        // Rounded down, and what is needed is rounded up, so that no message says that enough is free.
        return free / (1 << 20)
    }

    private static func mebibytes(_ bytes: Int) -> Int {
        (bytes + (1 << 20) - 1) / (1 << 20)
    }
}
