internal import Glibc
internal import Server
internal import Settings
internal import System

/// Checks the permissions of files.
enum FileCheck {
    /// The settings file: it contains no secrets, but says where they are, so that only its owner should write it.
    static func settingsFile(_ path: String) -> [Finding] {
        guard let status = FileStatus(path), status.mode & 0o022 != 0 else { return [] }
        return [
            .problem(
                "Settings", "others may write \(path) (mode \(status.permissions))", "chmod go-w \(path)"
            )
        ]
    }

    /// A file that only the server's user should read.
    static func secret(_ path: String, _ topic: String) -> [Finding] {
        guard let status = FileStatus(path), !status.isFolder, status.isOpenToOthers else { return [] }
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
                "chmod 600 \(path), or 640 for a group; if another user may have read it, replace key and certificate"
            )
        ]
    }
}
