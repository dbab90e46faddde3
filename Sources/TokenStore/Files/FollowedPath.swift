internal import Glibc

/// The path of a file of the store, with the symbolic links in its place followed.
///
/// Links are followed one by one, as whoever may write to a folder on the way could have them lead anywhere: root follows
/// only its own, in folders that nobody else can change. The folder that the operator has named is taken as it is.
package struct FollowedPath {
    /// Without symbolic links from the file's folder on; the path as it was given when there are none.
    package let path: String
    /// Whether the given path is that of a link.
    package let isLink: Bool

    /// The most links that the kernel follows as well (path_resolution(7)).
    private static let linkLimit = 40

    /// Follows the links at a path.
    ///
    /// A file that is no link may be missing; a link's target may not.
    package init(_ path: String) throws(LinkError) {
        var status = stat()
        guard unsafe lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFLNK else {
            (self.path, isLink) = (path, false)
            return
        }
        let slash = path.lastIndex(of: "/")
        var resolved = PrivateFile.resolved(PrivateFile.folder(of: path))
        // The components that are left, in reverse order.
        var components = [slash.map { String(path[path.index(after: $0)...]) } ?? path]
        var links = 0
        while let name = components.popLast() {
            if name == "." { continue }
            if name == ".." {
                resolved = PrivateFile.folder(of: resolved)
                continue
            }
            let candidate = resolved == "/" ? "/" + name : resolved + "/" + name
            guard unsafe lstat(candidate, &status) == 0 else { throw .leadsNowhere(path: path, target: candidate) }
            guard status.st_mode & S_IFMT == S_IFLNK else {
                resolved = candidate
                continue
            }
            links += 1
            guard links <= Self.linkLimit else { throw .leadsNowhere(path: path, target: candidate) }
            guard geteuid() != 0 || Self.isRoots(status, in: resolved) else { throw .ofOthers(path: candidate) }
            guard let target = Self.target(of: candidate) else {
                throw .leadsNowhere(path: path, target: candidate)
            }
            if target.hasPrefix("/") { resolved = "/" }
            components += target.split(separator: "/").reversed().map(String.init)
        }
        (self.path, isLink) = (resolved, true)
    }

    /// Whether nobody but root can have made a link, or put it where it is.
    private static func isRoots(_ link: stat, in folder: String) -> Bool {
        var status = stat()
        guard link.st_uid == 0, unsafe stat(folder, &status) == 0, status.st_uid == 0 else { return false }
        // In a sticky folder, such as /tmp, only a file's owner can replace it.
        return status.st_mode & 0o022 == 0 || status.st_mode & S_ISVTX != 0
    }

    private static func target(of link: String) -> String? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlink(link, &bytes, bytes.count)
        guard count > 0 else { return nil }
        return String(decoding: bytes[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Whether a path is that of a link, wherever that leads.
    package static func isLink(_ path: String) -> Bool {
        var status = stat()
        return unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
    }
}

/// A symbolic link in the place of a file that is not followed; says what to do about it.
package enum LinkError: Error, Hashable, CustomStringConvertible {
    /// Its target does not exist, and is not created, as that could be anywhere.
    case leadsNowhere(path: String, target: String)
    /// Users other than root could make it lead to any file.
    case ofOthers(path: String)
    /// It stands in the place of a file that may not be a link.
    case unexpected(path: String)

    package var description: String {
        switch self {
        case .leadsNowhere(let path, let target):
            "\(path) is a link to \(target), which does not exist; mount the disk that holds it, or remove the link"
        case .ofOthers(let path):
            """
            \(path) is a link that other users than root can change, so root does not follow it; run this as the owner of \
            its folder, or make root the owner of the link and its folder
            """
        case .unexpected(let path):
            "\(path) is a link, which is not allowed for this file; find out who made the link, and remove it"
        }
    }
}
