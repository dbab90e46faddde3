internal import EventLoop
internal import FoundationEssentials
internal import Server
internal import System

/// The addresses and limits of a running server, which it reports on the control socket.
struct ServerFacts: Codable, Sendable {
    var processID: Int
    var version: String
    /// The clients' listeners, with the ports that the system chose: `http://127.0.0.1:8080`, `unix:/run/http.sock`.
    var listeners: [String]
    /// The listeners of `admin.listen`, in the same form.
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
