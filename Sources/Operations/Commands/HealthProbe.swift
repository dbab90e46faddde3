internal import Glibc
package import Server
package import Settings

/// Asks the server of the data folder whether it is ready, for the probes of service managers.
///
/// Blocks the calling thread, for a few seconds at most.
package enum HealthProbe {
    /// The limit for connecting and for each wait for bytes, so that the probe detects a server that hangs.
    static let timeoutInSeconds = 5

    /// The server's readiness; not ready if the server does not answer.
    package static func ask(_ settings: Settings) -> ServiceReadiness {
        let path = ControlSocketAddress.path(settings)
        let reason: String
        do throws(ServerClient.Failure) {
            return try ServerClient(path: path, timeoutInSeconds: timeoutInSeconds).answer("GET", "/readyz")
        } catch {
            switch error {
            case .unreachable(_, ENOENT), .unreachable(_, ECONNREFUSED): reason = "no server listens there"
            case .unreachable(let text, _): reason = text
            case .noAnswer: reason = "no answer came"
            case .unreadable, .refused: reason = "the program that answers there is not token-cache"
            }
        }
        return ServiceReadiness(reasons: ["\(path) does not report its readiness: \(reason)"])
    }
}
