internal import CLinux
internal import Glibc

/// What tells one file from another for as long as either is open: device and inode.
package struct FileIdentity: Hashable, Sendable {
    package private(set) var device: UInt64
    package private(set) var number: UInt64

    /// The file that a path leads to, and its size in bytes; nil if there is none.
    ///
    /// Unlike `FileStatus` it does not ask for times, which would make the file's next sync dearer (see CLinux.h).
    package static func find(_ path: String) -> (identity: FileIdentity, size: UInt64)? {
        var (identity, size) = (FileIdentity(device: 0, number: 0), UInt64(0))
        let code = unsafe clinux_file_identity(path, &identity.device, &identity.number, &size)
        if code == 0 { return (identity, size) }
        // System call filters, such as those of containers before 2018, can refuse statx; then stat has to do.
        guard errno == EPERM || errno == ENOSYS, let status = FileStatus(path) else { return nil }
        return (status.identity, UInt64(status.size))
    }

    /// Whether two paths lead to one file.
    package static func areSame(_ first: String, _ second: String) -> Bool {
        guard let one = find(first), let other = find(second) else { return false }
        return one.identity == other.identity
    }
}
