internal import CLinux
internal import Glibc

/// The file system that a path is on.
package struct FileSystem {
    /// As statfs(2) lists them; 0 if it cannot be told.
    package let type: UInt32
    /// Bytes that users other than root may still write; nil if it cannot be told.
    package let freeBytes: Int?

    package init(of path: String) {
        type = unsafe clinux_file_system(path)
        var status = statvfs()
        guard unsafe statvfs(path, &status) == 0 else {
            freeBytes = nil
            return
        }
        // Some file systems report more than there can be.
        let (bytes, overflows) = status.f_bavail.multipliedReportingOverflow(by: status.f_frsize)
        freeBytes = overflows ? .max : Int(clamping: bytes)
    }
}
