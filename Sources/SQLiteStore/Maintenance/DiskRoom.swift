internal import System
internal import TokenStore

/// Refuses a backup for which a disk has no room, before the disk is filled.
enum BackupRoom {
    /// What stays free on the store's own disk, so that a backup there does not keep the server from storing tokens.
    private static let reserve = 16 << 20

    /// - Parameters:
    ///   - bytes: The size of the backup.
    ///   - path: The path of the backup.
    ///   - store: The path of the store's database.
    static func check(for bytes: Int, at path: String, besides store: String) throws(StoreError) {
        let folder = Path.folder(of: path)
        guard let target = FileStatus(folder), let free = FileSystem(of: folder).freeBytes else { return }
        let isStoreDisk = FileStatus(store)?.identity.device == target.identity.device
        let needed = bytes + (isStoreDisk ? reserve : 0)
        guard free < needed else { return }
        let mebibyte = 1 << 20
        let keptFree = ", and \(reserve / mebibyte) MiB must stay free for the store on the same disk"
        // Rounded in opposite directions, so that the message never says that more is free than is needed.
        throw .refused(
            """
            the backup needs \((bytes + mebibyte - 1) / mebibyte) MiB\(isStoreDisk ? keptFree : ""), \
            but only \(free / mebibyte) MiB are free in \(folder); make room, or name a folder on another disk
            """
        )
    }
}
