internal import Glibc
package import Server
package import Settings

/// Has a running server do something to itself, over its control socket.
package enum ServerControl {
    package typealias Failure = StoreAccess.Failure

    /// Has it read its settings and files again, and waits for the outcome.
    package static func reload(_ settings: Settings) throws(Failure) -> ReloadOutcome {
        try ask("/reload", settings)
    }

    /// Has it stop when everything that it has received is answered; does not wait for that.
    package static func drain(_ settings: Settings) throws(Failure) -> Draining {
        try ask("/drain", settings)
    }

    private static func ask<Answer: Decodable>(_ path: String, _ settings: Settings) throws(Failure) -> Answer {
        let directory = settings.dataDirectoryPath
        let socketPath = ControlSocketAddress.path(in: directory)
        do throws(ServerClient.Failure) {
            return try ServerClient(place: .unix(path: socketPath)).answer("POST", path)
        } catch {
            switch error {
            case .unreachable(_, ENOENT), .unreachable(_, ECONNREFUSED):
                throw Failure(
                    "no server has the data folder \(directory); name that of the server with --data-directory or --config"
                )
            case .unreachable(_, EACCES), .unreachable(_, EPERM):
                throw Failure("\(socketPath) is not for this user; run this as root or as the server's user")
            case .unreachable(let reason, _): throw Failure("\(socketPath) cannot be connected to: \(reason)")
            case .noAnswer: throw Failure("the server went away before it had answered")
            case .refused(let reason): throw Failure("the server did not do it: \(reason)")
            case .unreadable: throw Failure("the server did not do it: its answer cannot be read")
            }
        }
    }
}
