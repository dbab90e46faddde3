internal import EventLoop
internal import Foundation
internal import Server

/// What a running server tells of itself on the control socket.
struct ServerFacts: Codable, Sendable {
    var processID: Int
    var version: String
    /// As the log shows them, with the ports that the system has chosen: `http://127.0.0.1:8080`, `unix:/run/http.sock`.
    var listeners: [String]
    var administration: [String]
    /// The limit of open files.
    var descriptorLimit: Int

    private enum CodingKeys: String, CodingKey {
        case processID = "process_id"
        case version, listeners, administration
        case descriptorLimit = "descriptor_limit"
    }

    static let path = "/server"

    /// Asks a running server.
    ///
    /// - Parameter path: Of its control socket.
    init(askedAt path: String) throws(BlockingSocket.Failure) {
        let socket = try BlockingSocket(unixPath: path, patienceInSeconds: HealthProbe.patienceInSeconds)
        socket.send(Data("GET \(Self.path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8))
        var answer = Data()
        while answer.count < 1 << 16, let chunk = socket.receive() { answer.append(chunk) }
        guard !answer.isEmpty else { throw BlockingSocket.Failure(reason: "no answer came") }
        guard let end = answer.firstRange(of: Data("\r\n\r\n".utf8))?.upperBound,
            let facts = try? JSONDecoder().decode(Self.self, from: answer[end...])
        else {
            throw BlockingSocket.Failure(reason: "it tells nothing of itself; it may be another version")
        }
        self = facts
    }

    init(_ server: Server, administration: [String], version: String) {
        processID = Int(ProcessInfo.processInfo.processIdentifier)
        self.version = version
        listeners = server.listenerNames
        self.administration = administration
        descriptorLimit = DescriptorLimit.current
    }
}
