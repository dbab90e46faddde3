internal import EventLoop
internal import Glibc
package import Server
package import Settings
internal import System

/// Asks a running server whether it is ready, for the probes of service managers.
///
/// Blocks the calling thread, for a few seconds at most.
package struct HealthProbe {
    private let settings: Settings

    /// The limit for connecting and for each wait for bytes, so that the probe detects a server that hangs.
    static let timeoutInSeconds = 5

    package init(_ settings: Settings) {
        self.settings = settings
    }

    /// The server's readiness; not ready if the server does not answer.
    package func ask() -> ServiceReadiness {
        var failures: [String] = []
        for address in settings.admin.listen where !address.isChosenBySystem {
            guard case .tcp(let host, let port) = address.place else { continue }
            switch Self.ask(host, port) {
            case .success(let readiness): return readiness
            case .failure(let reason): failures.append("\(address) does not report its readiness: \(reason)")
            }
        }
        guard failures.isEmpty else { return ServiceReadiness(reasons: failures) }
        return askControlSocket()
    }

    /// Asks the server that uses the data folder.
    func askControlSocket() -> ServiceReadiness {
        let path = ControlSocketAddress.path(settings)
        switch Self.ask(.unix(path: path)) {
        case .success(let readiness): return readiness
        case .failure(let reason):
            return ServiceReadiness(reasons: ["\(path) does not report its readiness: \(reason)"])
        }
    }

    private enum Outcome {
        case success(ServiceReadiness)
        case failure(String)
    }

    private static func ask(_ host: String, _ port: UInt16) -> Outcome {
        let addresses: [SocketAddress]
        do throws(SocketAddress.ResolutionError) {
            addresses = try SocketAddress.resolve(host: host, port: port)
        } catch {
            return .failure(error.reason)
        }
        var outcome = Outcome.failure("the name has no address")
        for address in addresses {
            outcome = ask(.tcp(address))
            if case .success = outcome { break }
        }
        return outcome
    }

    private static func ask(_ place: ServerClient.Place) -> Outcome {
        do throws(ServerClient.Failure) {
            return .success(try ServerClient(place: place, timeoutInSeconds: timeoutInSeconds).answer("GET", "/readyz"))
        } catch {
            switch error {
            case .unreachable(_, ENOENT), .unreachable(_, ECONNREFUSED): return .failure("no server listens there")
            case .unreachable(let reason, _): return .failure(reason)
            case .noAnswer: return .failure("no answer came")
            case .unreadable, .refused: return .failure("the program that answers there is not token-cache")
            }
        }
    }
}
