internal import Glibc

/// What stat(2) tells of a file.
package struct FileStatus: Sendable {
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
    /// How many names the file has.
    package let linkCount: Int
    package let identity: FileIdentity
    /// Since 1970.
    package let modificationTime: (seconds: Int, nanoseconds: Int)

    /// Nil if there is no file, or none that this user may see.
    ///
    /// - Parameters:
    ///   - path: Of the file.
    ///   - followingLinks: Whether a link in its place is followed.
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

    /// Of an open file.
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
        linkCount = Int(status.st_nlink)
        identity = FileIdentity(device: UInt64(status.st_dev), number: UInt64(status.st_ino))
        modificationTime = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
    }

    package var isFile: Bool { kind == .file }
    package var isFolder: Bool { kind == .folder }
    package var isLink: Bool { kind == .link }
    package var isSocket: Bool { kind == .socket }
    package var isPipe: Bool { kind == .pipe }

    /// As chmod(1) takes it: `0640`.
    package var permissions: String { "0" + String(mode & 0o777, radix: 8) }

    /// The size in bytes; 0 for a file that does not exist.
    package static func size(of path: String) -> Int { FileStatus(path)?.size ?? 0 }

    package static func exists(_ path: String) -> Bool { unsafe access(path, F_OK) == 0 }
}
