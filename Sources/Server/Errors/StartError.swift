import Glibc
import System
package import TokenStore

/// Why the server cannot start, and what to do about it.
package struct StartError: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }

    /// The same error for an address of `admin.listen`.
    package var ofAdministration: StartError { StartError("admin.listen: \(self); or set admin.listen to off") }

    package static func store(_ error: StoreOpenError) -> StartError { StartError("\(error)") }

    static func setup(_ error: any Error) -> StartError {
        StartError("the server cannot be set up: \(error)\((error as? SystemError)?.shortageAdvice ?? "")")
    }

    static func passedSockets(_ reason: String) -> StartError {
        StartError("the sockets that systemd has passed cannot be used: \(reason)")
    }

    static func accessLog(_ path: String, _ error: SystemError) -> StartError {
        StartError(
            """
            the file "\(path)" of access_log cannot be opened: \(error.reason)\
            \(error.fileAdvice(otherwise: accessLogAdvice(path)))
            """)
    }

    private static func accessLogAdvice(_ path: String) -> String {
        // If systemd passes output on to the journal, these lead to sockets, which cannot be opened.
        if ["/dev/stdout", "/dev/stderr"].contains(path) || path.hasPrefix("/proc/self/fd/") {
            return "name no file: without one, lines go to standard output, also where the journal reads it"
        }
        return switch FileStatus(path)?.kind {
        case .socket: "it is a socket; name a file, or none for standard output"
        case .pipe: "it is a pipe; start its reader first, and give the server's user write access"
        default: "its folder has to exist, and the server's user needs write access to it"
        }
    }
}

/// Addresses that cannot be listened on.
extension StartError {
    /// - Parameters:
    ///   - address: An IP address with its port.
    ///   - error: The error that `Listener` threw.
    static func listening(on address: String, _ error: SystemError) -> StartError {
        let reason = "\(address) cannot be listened on (\(error))"
        return switch error.code {
        case EADDRINUSE:
            StartError(
                """
                \(address) \(isInUse), or choose another address (--listen, or the settings listen and admin.listen)
                """)
        case EACCES, EPERM:
            StartError("\(reason); ports below 1024 need the capability CAP_NET_BIND_SERVICE, or choose another port")
        case EINVAL where address.hasPrefix("[fe"):
            StartError("\(reason); a link-local address needs its interface, as in [fe80::1%eth0]:8080")
        default: StartError(reason + (error.shortageAdvice ?? "; choose an address of this machine"))
        }
    }

    /// - Parameters:
    ///   - path: The path of a Unix socket.
    ///   - error: The error that `Listener` threw or would throw.
    static func listening(onSocketAt path: String, _ error: SystemError) -> StartError {
        let (folder, place) = (Path.folder(of: path), "; name a path elsewhere, such as below /run")
        let reason = "unix:\(path) cannot be listened on (\(error))"
        switch (error.call, error.code) {
        case ("bind", EADDRINUSE):
            guard FileStatus(path, followingLinks: false)?.isSocket == true else {
                return StartError("\(path) exists and is not a socket; move it away, or name another path")
            }
            return StartError("unix:\(path) \(isInUse), or name another path")
        case ("bind", ENOENT), ("bind", ENOTDIR):
            return StartError(
                "the folder of unix:\(path) is missing; create \(folder), with the server's user as owner")
        case ("bind", EACCES), ("bind", EPERM):
            return StartError(
                "\(reason), as this user may not write in \(folder); give the server's user write access to it\(place)")
        case ("connect", EACCES), ("connect", EPERM):
            return StartError(
                """
                unix:\(path) exists, and this user may not see whether a program listens on it; \
                if none does (ss -lxp shows it), remove the file, or name another path
                """)
        default: return StartError(reason + (error.shortageAdvice ?? place))
        }
    }

    private static let isInUse =
        """
        is in use by another program, perhaps another token-cache, or the settings name it twice; stop that program \
        (as root, ss -lxtnp shows it)
        """
}
