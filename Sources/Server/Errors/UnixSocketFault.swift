internal import EventLoop
internal import Glibc
internal import System

/// Why a Unix socket cannot be listened on; says what to do about it.
package struct UnixSocketFault: Error, CustomStringConvertible {
    package enum Reason: Hashable {
        case noFolder
        /// This user may not make files in the folder.
        case closedFolder
        case readOnly
        case notASocket
        case inUse
        /// A socket is there, and this user may not find out whether anybody listens on it.
        case hidden
        /// The file cannot be given to a user or group, for this reason.
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
    ///   - error: What `Listener` has failed with.
    ///   - path: Of the socket.
    ///   - owner: Whom its file was to be given to.
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
        case .noFolder: "the folder of unix:\(path) is missing; make \(folder), with the server's user as owner"
        case .closedFolder:
            """
            unix:\(path) cannot be made, as this user may not write in \(folder); \
            give the server's user write access to it, or name a path in another folder
            """
        case .readOnly: "unix:\(path) is on a file system that is read-only; name a path elsewhere, such as below /run"
        case .notASocket: "\(path) is there and is no socket; move it away, or name another path"
        case .inUse: "unix:\(path) is in use by another program; stop that one (ss -lxp shows it), or name another path"
        case .hidden:
            """
            unix:\(path) is there, and this user may not see whether a program listens on it; \
            if none does (ss -lxp shows it), remove the file, or name another path
            """
        case .owner(let owner, let reason):
            """
            unix:\(path) cannot be given to \(owner) (\(reason)), as only root can do that, and its owner only for groups \
            of his own; leave ?owner= out and have ?mode=0666 in a folder that only the right group may enter, or use \
            the socket unit with SocketUser= and SocketGroup=
            """
        case .other(let reason): "unix:\(path) cannot be listened on: \(reason); name another path"
        }
    }
}
