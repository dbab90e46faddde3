internal import EventLoop
internal import Glibc
internal import System

/// Why the server cannot listen on a Unix socket; the description says what to do.
package struct UnixSocketFault: Error, CustomStringConvertible {
    package enum Reason: Hashable {
        case noFolder
        /// This user has no permission to create files in the folder.
        case closedFolder
        /// The file system is read-only.
        case readOnly
        /// A file that is not a socket has this path.
        case notASocket
        case inUse
        /// The socket exists, but this user has no permission to find out whether a program listens on it.
        case hidden
        /// The owner or group of the file cannot be changed to this one, for this reason.
        case owner(String, reason: String)
        case other(String)
    }

    let path: String
    let reason: Reason

    package init(_ path: String, _ reason: Reason) {
        self.path = path
        self.reason = reason
    }

    /// - Parameters:
    ///   - error: The error that `Listener` threw.
    ///   - path: The socket's path.
    ///   - owner: The user, or `user:group`, that the file was to belong to.
    init(_ error: SystemError, path: String, owner: String) {
        self.path = path
        reason =
            switch (error.call, error.code) {
            case ("chown", _): .owner(owner, reason: error.reason)
            case ("connect", EACCES), ("connect", EPERM): .hidden
            case ("bind", EADDRINUSE): FileStatus(path)?.isSocket == true ? .inUse : .notASocket
            case ("bind", EACCES), ("bind", EPERM): .closedFolder
            case ("bind", EROFS): .readOnly
            case ("bind", ENOENT): .noFolder
            default: .other(error.description)
            }
    }

    private var folder: String { Path.folder(of: path) }

    package var description: String {
        switch reason {
        case .noFolder: "the folder of unix:\(path) is missing; create \(folder), with the server's user as owner"
        case .closedFolder:
            """
            unix:\(path) cannot be created, as this user may not write in \(folder); \
            give the server's user write access to it, or name a path in another folder
            """
        case .readOnly: "unix:\(path) is on a file system that is read-only; name a path elsewhere, such as below /run"
        case .notASocket: "\(path) exists and is not a socket; move it away, or name another path"
        case .inUse:
            "unix:\(path) is in use by another program; stop that program (ss -lxp shows it), or name another path"
        case .hidden:
            """
            unix:\(path) exists, and this user may not see whether a program listens on it; \
            if none does (ss -lxp shows it), remove the file, or name another path
            """
        case .owner(let owner, let reason):
            """
            unix:\(path) cannot be given to \(owner) (\(reason)): only root can change the owner of a file, and the owner \
            can only choose among their own groups; remove ?owner= and use ?mode=0666 in a folder that only the right \
            group may enter, or use the socket unit with SocketUser= and SocketGroup=
            """
        case .other(let reason): "the server cannot listen on unix:\(path): \(reason); name another path"
        }
    }
}
