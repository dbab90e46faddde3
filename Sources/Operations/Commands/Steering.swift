internal import Foundation
internal import Glibc
package import Server
package import Settings

/// Has a running server do something to itself, over its control socket.
package enum Steering {
    package typealias Failure = StoreAccess.Failure

    /// Has it read its settings and files again, and waits for what comes of it.
    package static func reload(_ settings: Settings) throws(Failure) -> ReloadOutcome {
        try ask("/reload", settings)
    }

    /// Has it stop when all that it has received is answered; does not wait for that.
    package static func drain(_ settings: Settings) throws(Failure) -> Draining {
        try ask("/drain", settings)
    }

    private static func ask<Answer: Decodable>(_ path: String, _ settings: Settings) throws(Failure) -> Answer {
        let directory = StoreAccess.directory(settings)
        let socketPath = ControlSocket.path(in: directory)
        let socket: BlockingSocket
        do throws(BlockingSocket.Failure) {
            socket = try BlockingSocket(unixPath: socketPath, patienceInSeconds: nil)
        } catch {
            switch error.code {
            case ENOENT, ECONNREFUSED:
                throw Failure(
                    "no server has the data folder \(directory); name that of the server with --data-directory or --config"
                )
            case EACCES, EPERM:
                throw Failure("\(socketPath) is not for this user; run this as root or as the server's user")
            default: throw Failure("\(socketPath) cannot be connected to: \(error.reason)")
            }
        }
        socket.send(Data("POST \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8))
        var answer = Data()
        while let chunk = socket.receive() { answer.append(chunk) }
        guard let end = answer.firstRange(of: Data("\r\n\r\n".utf8))?.upperBound else {
            throw Failure("the server went away before it had answered")
        }
        let body = Data(answer[end...])
        if let answer = try? JSONDecoder().decode(Answer.self, from: body) { return answer }
        let refusal = try? JSONDecoder().decode([String: String].self, from: body)
        throw Failure("the server did not do it: \(refusal?["error"] ?? "its answer cannot be read")")
    }
}

/// The answer to having the server stop.
package struct Draining: Codable, Sendable {
    package var draining: Bool
}
