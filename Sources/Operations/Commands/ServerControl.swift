internal import Glibc
package import Server
package import Settings

/// Reloads or stops a running server through its control socket.
package enum ServerControl {
    package typealias Failure = StoreAccess.Failure

    /// Makes the server read its settings and files again, and waits for the outcome.
    package static func reload(_ settings: Settings) throws(Failure) -> ReloadOutcome {
        try ask("/reload", settings)
    }

    /// Makes the server answer the requests it has received, and stop; does not wait for that.
    package static func drain(_ settings: Settings) throws(Failure) -> DrainReply {
        try ask("/drain", settings)
    }

    /// Tells the server, if one runs in the data folder, that an API key was added or removed.
    ///
    /// It throws nothing: a server that could not be told finds the change itself.
    ///
    /// - Returns: Why the server cannot use the changed file, in which case its previous keys stay in use. Nil if it can use
    ///   the file, or if no server answers.
    package static func report(_ change: KeyChange, _ settings: Settings) -> String? {
        let place = ServerClient.Place.unix(path: ControlSocketAddress.path(in: settings.dataDirectoryPath))
        guard let body = try? OperationsJSON.encode(change) else { return nil }
        let client = ServerClient(place: place, timeoutInSeconds: HealthProbe.timeoutInSeconds)
        var fault: String?
        try? client.post(KeyChange.path, body) { (line) throws(ServerClient.Failure) in
            fault = (try? OperationsJSON.decode(ControlLine<KeyChangeReply>.self, from: line))?.reply?.fault
            return false
        }
        return fault
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
                    """
                    no server uses the data folder \(directory); start it, or name the folder of another server with \
                    --data-directory or --config
                    """
                )
            case .unreachable(_, EACCES), .unreachable(_, EPERM):
                throw Failure("this user may not connect to \(socketPath); run this as root or as the server's user")
            case .unreachable(let reason, _): throw Failure("connecting to \(socketPath) failed: \(reason)")
            case .noAnswer: throw Failure("the server ended before it answered")
            case .refused(let reason): throw Failure("the server refused: \(reason)")
            case .unreadable: throw Failure("the server's answer cannot be read; it may be another version")
            }
        }
    }
}

/// The answer to a request to drain and stop.
package struct DrainReply: Codable, Sendable {
    package var draining: Bool
}
