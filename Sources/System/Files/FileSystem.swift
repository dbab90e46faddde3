internal import CLinux
internal import Glibc

/// The file system that a path is on.
package struct FileSystem: Sendable {
    /// As statfs(2) lists them; 0 if it cannot be told.
    package let type: UInt32
    /// Nil if it cannot be told.
    package let space: Space?

    /// How much of a file system is in use.
    package struct Space: Sendable, Equatable {
        package let bytes: Int
        /// What users other than root may still write.
        package let freeBytes: Int
        /// 0 on a file system without a limit of files, such as Btrfs.
        package let inodes: Int
        package let freeInodes: Int

        package init(bytes: Int, freeBytes: Int, inodes: Int, freeInodes: Int) {
            self.bytes = bytes
            self.freeBytes = freeBytes
            self.inodes = inodes
            self.freeInodes = freeInodes
        }
    }

    /// Bytes that users other than root may still write; nil if it cannot be told.
    package var freeBytes: Int? { space?.freeBytes }

    /// Waits for the file system, which may take for ever if its disk or its server does not answer.
    package init(of path: String) {
        type = unsafe clinux_file_system(path)
        var status = statvfs()
        guard unsafe statvfs(path, &status) == 0 else {
            space = nil
            return
        }
        space = Space(
            bytes: Self.bytes(status.f_blocks, status), freeBytes: Self.bytes(status.f_bavail, status),
            inodes: Int(clamping: status.f_files), freeInodes: Int(clamping: status.f_favail)
        )
    }

    private static func bytes(_ blocks: fsblkcnt_t, _ status: statvfs) -> Int {
        // Some file systems report more than there can be.
        let (bytes, overflows) = blocks.multipliedReportingOverflow(by: fsblkcnt_t(status.f_frsize))
        return overflows ? .max : Int(clamping: bytes)
    }
}
