internal import Glibc
internal import Server
internal import Settings
internal import System

/// Who may read and write the files.
enum FileCheck {
    /// Settings hold no secrets, but say where those are: nobody else is to write them.
    static func settingsFile(_ path: String) -> [Finding] {
        guard let status = FileStatus(path), status.mode & 0o022 != 0 else { return [] }
        return [
            .problem(
                "Settings", "others may write \(path) (mode \(status.permissions))", "chmod go-w \(path)"
            )
        ]
    }

    /// A file that only the server's user is to read.
    static func secret(_ path: String, _ topic: String) -> [Finding] {
        guard let status = FileStatus(path), !status.isFolder, status.mode & 0o077 != 0 else { return [] }
        return [
            .problem(
                topic, "others may read or write \(path) (mode \(status.permissions))", "chmod 600 \(path)"
            )
        ]
    }

    /// A private key, which a group of programs may share.
    static func privateKey(_ path: String, _ topic: String) -> [Finding] {
        guard let status = FileStatus(path), status.isFile, status.mode & 0o027 != 0 else { return [] }
        return [
            .problem(
                topic, "others may read or write the private key \(path) (mode \(status.permissions))",
                "chmod 600 \(path), or 640 for a group; if somebody has read it, get a new key and certificate"
            )
        ]
    }
}
