internal import EventLoop
internal import Foundation
package import Server
package import Settings

/// Asks a running server whether it is ready, as a probe of a service manager does.
///
/// On the calling thread, for a few seconds at most.
package struct HealthProbe {
    private let settings: Settings

    /// For each step of the conversation: a server that hangs says nothing, and its manager has to learn of that.
    static let patienceInSeconds = 5
    private static let answerLimit = 64 << 10

    package init(_ settings: Settings) {
        self.settings = settings
    }

    /// What the server says; not ready when it says nothing.
    package func ask() -> ServiceReadiness {
        var failures: [String] = []
        for address in settings.admin.listen where !address.isChosenBySystem {
            guard case .tcp(let host, let port) = address.place else { continue }
            do throws(BlockingSocket.Failure) {
                return try Self.ask(host, port)
            } catch {
                failures.append("\(address) does not say that it is ready: \(error.reason)")
            }
        }
        guard failures.isEmpty else { return ServiceReadiness(reasons: failures) }
        return askControlSocket()
    }

    /// What the server says that has the data folder.
    func askControlSocket() -> ServiceReadiness {
        let path = ControlSocket.path(in: StoreAccess.directory(settings))
        do throws(BlockingSocket.Failure) {
            return try Self.ask(try BlockingSocket(unixPath: path, patienceInSeconds: Self.patienceInSeconds))
        } catch {
            return ServiceReadiness(reasons: ["\(path) does not say that it is ready: \(error.reason)"])
        }
    }

    private static func ask(_ host: String, _ port: UInt16) throws(BlockingSocket.Failure) -> ServiceReadiness {
        let addresses: [SocketAddress]
        do throws(SocketAddress.ResolutionError) {
            addresses = try SocketAddress.resolve(host: host, port: port)
        } catch {
            throw BlockingSocket.Failure(reason: error.reason)
        }
        var failure = BlockingSocket.Failure(reason: "the name has no address")
        for address in addresses {
            do throws(BlockingSocket.Failure) {
                return try ask(try BlockingSocket(address, patienceInSeconds: patienceInSeconds))
            } catch {
                failure = error
            }
        }
        throw failure
    }

    private static func ask(_ socket: consuming BlockingSocket) throws(BlockingSocket.Failure) -> ServiceReadiness {
        socket.send(Data("GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8))
        var answer = Data()
        while answer.count < answerLimit, let chunk = socket.receive() { answer.append(chunk) }
        guard !answer.isEmpty else { throw BlockingSocket.Failure(reason: "no answer came") }
        guard let end = answer.firstRange(of: Data("\r\n\r\n".utf8))?.upperBound,
            let readiness = try? JSONDecoder().decode(ServiceReadiness.self, from: answer[end...])
        else {
            throw BlockingSocket.Failure(reason: "what answers there is no token-cache")
        }
        return readiness
    }
}
