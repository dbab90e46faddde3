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
    /// Those of `listeners` whose sockets systemd has passed; nil from a server of an earlier version.
    var passed: [PassedListener]?
    /// The listeners of `admin.listen`, in the same form.
    var administration: [String]
    /// In seconds since 1970; nil from a server of an earlier version.
    var startedAt: Double?
    /// The limit of open files.
    var descriptorLimit: Int

    /// A listener that takes the place of the entries of `listen` that speak the same protocol, unless one is `systemd`.
    struct PassedListener: Codable, Sendable {
        var name: String
        var isTLS: Bool
        var requiresProxyProtocol: Bool

        private enum CodingKeys: String, CodingKey {
            case name, requiresProxyProtocol
            case isTLS = "isTls"
        }
    }

    private enum CodingKeys: String, CodingKey {
        case processID = "processId"
        case version, listeners, passed, administration, startedAt, descriptorLimit
    }

    static let path = "/server"

    init(_ server: Server, administration: [String], version: String) {
        processID = Int(ProcessInfo.processInfo.processIdentifier)
        self.version = version
        listeners = server.listenerNames
        passed = server.passedListeners.map {
            PassedListener(name: $0.name, isTLS: $0.isTLS, requiresProxyProtocol: $0.requiresProxyProtocol)
        }
        self.administration = administration
        startedAt = ProcessMetrics.now.startTime
        descriptorLimit = DescriptorLimit.current
    }
}
