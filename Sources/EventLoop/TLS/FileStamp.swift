internal import Glibc

/// What tells whether a file was written or replaced: modification time, size and inode (stat(2)).
///
/// Links are followed: renewing a certificate often only points a link elsewhere.
struct FileStamp: Hashable {
    private let seconds: Int
    private let nanoseconds: Int
    private let size: Int
    private let inode: UInt

    /// Nil for a file that is not there or that we may not look at.
    init?(path: String) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        seconds = status.st_mtim.tv_sec
        nanoseconds = status.st_mtim.tv_nsec
        size = status.st_size
        inode = status.st_ino
    }
}
