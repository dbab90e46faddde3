internal import Glibc

/// The path of a file of the store, with the symbolic links in its place followed.
///
/// Links are followed one by one, as any user who may write to a folder on the way could point them anywhere: root follows
/// only links of its own, in folders that nobody else can change. The folder that the operator has named is taken as it is.
package struct FollowedPath {
    /// Without symbolic links from the file's folder on; the path as it was given if there are none.
    package let path: String
    /// Whether the given path is that of a link.
    package let isLink: Bool

    /// The most links that the kernel follows as well (path_resolution(7)).
    private static let linkLimit = 40

    /// Follows the links at a path.
    ///
    /// A file that is not a link may be missing; the target of a link may not.
    package init(_ path: String) throws(LinkError) {
        guard Self.isLink(path) else {
            (self.path, isLink) = (path, false)
            return
        }
        let slash = path.lastIndex(of: "/")
        var resolved = Path.resolved(Path.folder(of: path))
        // The components that are left, in reverse order.
        var components = [slash.map { String(path[path.index(after: $0)...]) } ?? path]
        var links = 0
        while let name = components.popLast() {
            if name == "." { continue }
            if name == ".." {
                resolved = Path.folder(of: resolved)
                continue
            }
            let candidate = resolved == "/" ? "/" + name : resolved + "/" + name
            guard let status = FileStatus(candidate, followingLinks: false) else {
                throw .leadsNowhere(path: path, target: candidate)
            }
            guard status.isLink else {
                resolved = candidate
                continue
            }
            links += 1
            guard links <= Self.linkLimit else { throw .leadsNowhere(path: path, target: candidate) }
            guard geteuid() != 0 || Self.belongsToRoot(status, in: resolved) else { throw .ofOthers(path: candidate) }
            guard let target = Self.target(of: candidate) else {
                throw .leadsNowhere(path: path, target: candidate)
            }
            if target.hasPrefix("/") { resolved = "/" }
            components += target.split(separator: "/").reversed().map(String.init)
        }
        (self.path, isLink) = (resolved, true)
    }

    /// Whether only root can have made a link, or put it where it is.
    private static func belongsToRoot(_ link: FileStatus, in folder: String) -> Bool {
        guard link.user == 0, let status = FileStatus(folder), status.user == 0 else { return false }
        // In a sticky folder, such as /tmp, only a file's owner can replace it.
        return status.mode & 0o022 == 0 || status.mode & S_ISVTX != 0
    }

    /// The text of a symbolic link (readlink(2)), whether or not its target exists; nil if the path is no symbolic link.
    static func target(of link: String) -> String? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlink(link, &bytes, bytes.count)
        guard count > 0 else { return nil }
        return String(decoding: bytes[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Whether a path is that of a link, wherever that leads.
    package static func isLink(_ path: String) -> Bool {
        FileStatus(path, followingLinks: false)?.isLink ?? false
    }
}
