internal import Glibc

/// What the system tells of a path.
package struct FileStatus {
    package let mode: UInt32
    package let user: UInt32

    /// Nil when there is nothing, or nothing that this user may see.
    package init?(_ path: String) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        mode = status.st_mode
        user = status.st_uid
    }

    package var isFile: Bool { mode & S_IFMT == S_IFREG }
    package var isFolder: Bool { mode & S_IFMT == S_IFDIR }
    package var isSocket: Bool { mode & S_IFMT == S_IFSOCK }

    /// As chmod(1) takes it: `0640`.
    package var permissions: String { "0" + String(mode & 0o777, radix: 8) }

    package static func folder(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// The next folder above a path that is there.
    package static func nearestFolder(to path: String) -> String {
        var path = path
        while FileStatus(path) == nil && path != "/" && path != "." { path = folder(of: path) }
        return path
    }
}
