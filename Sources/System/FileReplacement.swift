import Glibc

/// Replaces small files as a whole: whatever happens, either the old or the new one exists.
package enum FileReplacement {
    /// Writes bytes to a new file beside the old one, syncs it and renames it over the old one, durably.
    ///
    /// If root creates the file, it gets the owner of the one that it replaces, or of its folder. Two processes must not
    /// replace the same file at once.
    ///
    /// - Parameters:
    ///   - path: Not a symbolic link, which would be replaced itself.
    ///   - bytes: The new contents.
    ///   - permissions: The bits that the new file takes over from the old one; if they are 0 or there is no old one, its mode
    ///     is 0600.
    package static func replace(
        _ path: String, with bytes: [UInt8], keeping permissions: UInt32 = 0
    ) throws(SystemError) {
        try put(bytes, at: path, keeping: permissions)
        try Folder.synchronize(Path.folder(of: path))
    }

    /// Replaces a file, but a power cut may bring the old one back until its folder is synced.
    package static func put(_ bytes: [UInt8], at path: String, keeping permissions: UInt32 = 0) throws(SystemError) {
        let temporary = path + ".new"
        // An earlier attempt may have left one.
        _ = unsafe unlink(temporary)
        let descriptor = try FileDescriptor(opening: temporary, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        descriptor.adoptOwner(of: path)
        do throws(SystemError) {
            if permissions != 0 { try keep(permissions, of: path, descriptor) }
            try BlockingIO.write(bytes, to: descriptor.number)
            try BlockingIO.synchronize(descriptor.number)
            guard unsafe rename(temporary, path) == 0 else { throw SystemError.last("rename") }
        } catch {
            _ = unsafe unlink(temporary)
            throw error
        }
    }

    /// Gives a new file those of `permissions` that the file at a path has, and that file's group if this user is in it.
    private static func keep(
        _ permissions: UInt32, of path: String, _ descriptor: borrowing FileDescriptor
    ) throws(SystemError) {
        guard let former = FileStatus(path, followingLinks: false), former.isFile else { return }
        // The group comes first, because the permissions are meant for it.
        _ = fchown(descriptor.number, uid_t.max, former.group)
        guard fchmod(descriptor.number, former.mode & permissions) == 0 else { throw SystemError.last("fchmod") }
    }

    /// Locks the folder of a file while `body` reads and replaces the file (flock(2)), so that processes that do so at the same
    /// time do not undo each other's changes.
    ///
    /// - Parameters:
    ///   - path: The file's path.
    ///   - patience: How long to wait while another process keeps the folder locked, which anybody who can read the folder can do.
    ///   - failure: Returns the error to throw if the folder is still locked then.
    ///   - body: Reads and replaces the file.
    package static func withLock<Result, Failure: Error>(
        onFolderOf path: String, patience: Duration = .seconds(15), or failure: (LockedFolder) -> Failure,
        _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        // If the folder cannot be locked, as on some network file systems, the file is changed without a lock.
        let folder = Path.folder(of: path)
        let descriptor = retryingInterrupts { unsafe open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        defer { close(descriptor) }
        let deadline = MonotonicTime.now + patience
        while retryingInterrupts({ flock(descriptor, LOCK_EX | LOCK_NB) }) != 0, errno == EWOULDBLOCK {
            guard .now < deadline else { throw failure(LockedFolder(path: folder)) }
            usleep(10_000)
        }
        return try body()
    }
}

/// Why a file cannot be changed: another process keeps its folder locked.
package struct LockedFolder: Error, Hashable, CustomStringConvertible {
    let path: String

    package var description: String {
        "another process keeps its folder \(path) locked; end that process, which lslocks shows, and try again"
    }
}

/// The path of a file of the store after following symbolic links.
///
/// Links are followed one by one, because a user who may write to a folder on the way could point them anywhere: root follows
/// only its own links, in folders that nobody else can change. The folder that the operator has named is trusted.
package struct FollowedPath {
    /// The given path if it is not that of a link; otherwise the target's path, without symbolic links.
    package let path: String

    /// How many links are followed, as many as the kernel follows (path_resolution(7)).
    private static let linkLimit = 40

    /// Follows the links at a path.
    ///
    /// The file itself may be missing, but not the target of a link.
    package init(_ path: String) throws(LinkError) {
        guard Self.isLink(path) else {
            self.path = path
            return
        }
        let slash = path.lastIndex(of: "/")
        var resolved = Path.resolved(Path.folder(of: path))
        // The components that are still to be followed, in reverse order.
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
        self.path = resolved
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

    /// Whether a path is that of a link, even if the target is missing.
    package static func isLink(_ path: String) -> Bool {
        FileStatus(path, followingLinks: false)?.isLink ?? false
    }
}

/// The error for a symbolic link that is not followed; it says what to do about it.
package enum LinkError: Error, Hashable, CustomStringConvertible {
    /// Its target does not exist, and is not created, as that could be anywhere.
    case leadsNowhere(path: String, target: String)
    /// Users other than root could make it lead to any file.
    case ofOthers(path: String)
    /// This file may not be a link.
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
            """
            \(path) is a link, which is not allowed for this file; put the file itself there, or have the settings name the folder \
            that it is in; if you have not made the link, find out who has
            """
        }
    }
}
