import CLinux
import Glibc

/// What stat(2) says about a file; it differs after the file was written or replaced.
package struct FileStatus: Hashable, Sendable {
    package enum Kind: Sendable {
        case file, folder, link, socket, pipe
        /// A device.
        case other
    }

    package let kind: Kind
    /// The permission bits, at most 0o7777.
    package let mode: UInt32
    package let user: UInt32
    package let group: UInt32
    /// In bytes.
    package let size: Int
    /// Whether the file was deleted, and exists only as long as it is open.
    package let isRemoved: Bool
    package let identity: FileIdentity
    /// Seconds since 1970.
    package let modificationTime: Int
    private let modificationNanoseconds: Int

    /// Nil if there is no file, or none that this user may see.
    ///
    /// - Parameters:
    ///   - path: The file's path.
    ///   - followingLinks: Whether to follow a link at the path.
    package init?(_ path: String, followingLinks: Bool = true) {
        guard let status = try? Self.read(path, followingLinks: followingLinks) else { return nil }
        self = status
    }

    package static func read(_ path: String, followingLinks: Bool = true) throws(SystemError) -> FileStatus {
        var status = stat()
        guard unsafe followingLinks ? stat(path, &status) == 0 : lstat(path, &status) == 0 else {
            throw SystemError.last(followingLinks ? "stat" : "lstat")
        }
        return FileStatus(status)
    }

    /// The status of an open file.
    package static func read(_ descriptor: Int32) throws(SystemError) -> FileStatus {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { throw SystemError.last("fstat") }
        return FileStatus(status)
    }

    private init(_ status: stat) {
        kind =
            switch status.st_mode & S_IFMT {
            case S_IFREG: .file
            case S_IFDIR: .folder
            case S_IFLNK: .link
            case S_IFSOCK: .socket
            case S_IFIFO: .pipe
            default: .other
            }
        mode = status.st_mode & 0o7777
        user = status.st_uid
        group = status.st_gid
        size = max(0, Int(status.st_size))
        // How many names it has is not kept: another one is no change of the file.
        isRemoved = status.st_nlink == 0
        identity = FileIdentity(device: UInt64(status.st_dev), number: UInt64(status.st_ino))
        (modificationTime, modificationNanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
    }

    package var isFile: Bool { kind == .file }
    package var isFolder: Bool { kind == .folder }
    package var isLink: Bool { kind == .link }
    package var isSocket: Bool { kind == .socket }
    package var isPipe: Bool { kind == .pipe }

    /// The mode as chmod(1) takes it: `0640`.
    package var permissions: String { "0" + String(mode & 0o777, radix: 8) }

    /// The size in bytes; 0 for a file that does not exist.
    package static func size(of path: String) -> Int { FileStatus(path)?.size ?? 0 }

    /// The bytes that a file takes on its disk, without its holes; 0 for a file that does not exist.
    package static func allocatedSize(of path: String) -> Int {
        var status = stat()
        return unsafe stat(path, &status) == 0 ? min(Int(status.st_size), Int(status.st_blocks) * 512) : 0
    }

    package static func exists(_ path: String) -> Bool { unsafe access(path, F_OK) == 0 }
}

extension FileStatus {
    /// Whether users other than the owner may read or write the file, or enter the folder.
    ///
    /// In a Kubernetes pod, the group of its volumes (`fsGroup`) does not count: kubelet gives that group access to all files of a
    /// volume whenever it mounts one. The operator must give this group to no other pod.
    package var isOpenToOthers: Bool {
        mode & 0o077 != 0 && volumeGroup == nil
    }

    /// In a pod, the group of the volume that the file is on, if nobody else but the owner has access; otherwise nil.
    ///
    /// The volume's own folder is root's. kubelet gives it the group and the set-group-ID bit, and leaves others what they had: 02775
    /// or, of an emptyDir, 02777. They are whoever runs in containers that mount the volume.
    package var volumeGroup: UInt32? {
        Self.isInPod ? volumeGroup(ofUser: geteuid(), groups: Self.groups) : nil
    }

    /// - Parameters:
    ///   - user: The process's user.
    ///   - groups: The process's supplementary groups.
    func volumeGroup(ofUser user: UInt32, groups: [UInt32]) -> UInt32? {
        let isMount = isFolder && mode & 0o2000 != 0 && self.user == 0
        guard mode & 0o070 != 0, mode & 0o007 == 0 || isMount, self.user == user || self.user == 0, group != 0 else {
            return nil
        }
        return groups.contains(group) ? group : nil
    }

    /// Kubernetes sets the variable in all containers (kubernetes.io/docs/concepts/services-networking/service).
    private static var isInPod: Bool { ProcessEnvironment.value(of: "KUBERNETES_SERVICE_HOST") != nil }

    /// This process's supplementary groups (getgroups(2)).
    private static var groups: [UInt32] {
        var groups = [gid_t](repeating: 0, count: max(0, Int(getgroups(0, nil))))
        let count = unsafe getgroups(Int32(groups.count), &groups)
        return Array(groups.prefix(max(0, Int(count))))
    }
}

/// Identifies a file as long as it exists or is open: device and inode.
package struct FileIdentity: Hashable, Sendable {
    package private(set) var device: UInt64
    private(set) var number: UInt64

    /// The file that a path leads to, and its size in bytes; nil if there is none.
    package static func find(_ path: String) -> (identity: FileIdentity, size: UInt64)? { try? read(path) }

    /// The file that a path leads to, and its size in bytes.
    ///
    /// Unlike `FileStatus`, does not ask for times, which would make the file's next sync slower (see CLinux.h).
    package static func read(_ path: String) throws(SystemError) -> (identity: FileIdentity, size: UInt64) {
        var (identity, size) = (FileIdentity(device: 0, number: 0), UInt64(0))
        guard unsafe clinux_file_identity(path, &identity.device, &identity.number, &size) == 0 else {
            throw SystemError.last("statx")
        }
        return (identity, size)
    }

    /// Whether two paths lead to one file.
    package static func areSame(_ first: String, _ second: String) -> Bool {
        guard let one = find(first), let other = find(second) else { return false }
        return one.identity == other.identity
    }
}
