internal import EventLoop
internal import FoundationEssentials
internal import Server
internal import System

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
        case processID = "processId"
        case version, listeners, administration, descriptorLimit
    }

    static let path = "/server"

    init(_ server: Server, administration: [String], version: String) {
        processID = Int(ProcessInfo.processInfo.processIdentifier)
        self.version = version
        listeners = server.listenerNames
        self.administration = administration
        descriptorLimit = DescriptorLimit.current
    }
}
