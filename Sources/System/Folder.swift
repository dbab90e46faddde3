import CLinux
import Glibc

/// Folders: creating them, making their entries durable, listing them.
package enum Folder {
    /// Creates a folder (mode 0700) and the missing folders above it, durably; does nothing if it exists.
    package static func create(_ path: String) throws(SystemError) {
        do throws(SystemError) {
            guard try FileStatus.read(path).isFolder else { throw SystemError(call: "mkdir", code: ENOTDIR) }
            return
        } catch {
            guard error.call == "stat" else { throw error }
            let parent = Path.folder(of: path)
            if error.code == ENOENT && parent != "." && parent != "/" { try create(parent) }
            guard unsafe mkdir(path, 0o700) == 0 || errno == EEXIST else { throw SystemError.last("mkdir") }
            // The folder's own entry has to survive a power cut as well.
            try synchronize(parent)
        }
    }

    /// Makes a folder's entries durable (fsync(2)).
    package static func synchronize(_ path: String) throws(SystemError) {
        do {
            let descriptor = try FileDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
            try BlockingIO.synchronize(descriptor.number)
        } catch {
            // Some file systems have nothing to sync in a folder.
            if error.call == "fsync" && error.code == EINVAL { return }
            // A folder that may be written to but not read cannot be synced.
            guard error.call == "open" && error.code == EACCES else { throw error }
        }
    }

    /// The names in a folder, in no particular order, without `.` and `..`; nil if it cannot be read.
    package static func names(in path: String) -> [String]? {
        guard let stream = unsafe opendir(path) else { return nil }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { name in
                unsafe name.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if name != "." && name != ".." { names.append(name) }
        }
        return names
    }

    /// The path itself if it exists, otherwise the nearest folder above it that exists.
    package static func nearest(to path: String) -> String {
        var path = path
        while !FileStatus.exists(path) && path != "/" && path != "." { path = Path.folder(of: path) }
        return path
    }
}

/// Operations on paths as texts.
package enum Path {
    /// The path of the folder that a file is in; `.` for a bare name.
    package static func folder(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// The path without symbolic links (realpath(3)); unchanged if it does not exist.
    package static func resolved(_ path: String) -> String {
        guard let resolved = unsafe realpath(path, nil) else { return path }
        defer { unsafe free(resolved) }
        return unsafe String(cString: resolved)
    }
}

/// The file system that a path is on.
package struct FileSystem: Sendable {
    /// One of the numbers that statfs(2) lists; 0 if unknown.
    package let type: UInt32
    /// Nil if unknown.
    package let space: Space?

    /// How much of a file system is in use.
    package struct Space: Sendable, Equatable {
        package let bytes: Int
        /// What users other than root may still write.
        package let freeBytes: Int
        /// 0 on a file system without a limit of files, such as Btrfs.
        package let inodes: Int
        package let freeInodes: Int
    }

    /// Bytes that users other than root may still write; nil if unknown.
    package var freeBytes: Int? { space?.freeBytes }

    /// Blocks as long as the disk or the server of the file system does not answer.
    package init(of path: String) {
        type = unsafe clinux_file_system(path)
        var status = statvfs()
        // Some file systems in user space report zeros for all sizes, which does not mean that they are full.
        guard unsafe statvfs(path, &status) == 0, status.f_blocks > 0 else {
            space = nil
            return
        }
        space = Space(
            bytes: Self.bytes(status.f_blocks, status), freeBytes: Self.bytes(status.f_bavail, status),
            inodes: Int(clamping: status.f_files), freeInodes: Int(clamping: status.f_favail)
        )
    }

    /// The options of the file system that a path is on, as mountinfo has them (proc_pid_mountinfo(5)); empty if unknown.
    package static func options(of path: String) -> [Substring] {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return [] }
        let device = "\(status.st_dev >> 8 & 0xfff):\(status.st_dev & 0xff | status.st_dev >> 12 & 0xfff00)"
        let mounts = TextFile.head(of: "/proc/self/mountinfo", count: 1 << 20) ?? []
        for line in String(decoding: mounts, as: UTF8.self).split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count > 3, words[2] == device { return words.last?.split(separator: ",") ?? [] }
        }
        return []
    }

    private static func bytes(_ blocks: fsblkcnt_t, _ status: statvfs) -> Int {
        // Some file systems report sizes that overflow.
        let (bytes, overflows) = blocks.multipliedReportingOverflow(by: fsblkcnt_t(status.f_frsize))
        return overflows ? .max : Int(clamping: bytes)
    }
}
