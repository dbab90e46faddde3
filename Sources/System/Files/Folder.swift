internal import Glibc

/// Folders: creating them, making their entries durable, listing them.
package enum Folder {
    /// Creates a folder (mode 0700) durably, and those above it that are missing; without effect if it exists.
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
        do throws(SystemError) {
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

    /// The first folder on the way up from a path that exists.
    package static func nearest(to path: String) -> String {
        var path = path
        while !FileStatus.exists(path) && path != "/" && path != "." { path = Path.folder(of: path) }
        return path
    }
}
