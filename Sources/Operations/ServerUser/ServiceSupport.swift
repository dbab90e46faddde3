/// What a service manager does for the server before it starts it.
struct ServiceSupport: Codable, Hashable {
    /// The unit's file.
    let unit: String
    /// The folders that it creates for the server's user, or hands over to that user with everything in them.
    let folders: [String]
    /// The addresses that it listens on for the server, as socket units write them.
    let sockets: [String]
    /// Whether the user exists only while the service runs.
    let isDynamic: Bool
    /// Whether the server may listen on ports below 1024.
    let mayUseLowPorts: Bool
    /// Whether it hands files of root's to the server.
    let opensCredentials: Bool

    /// The folder that it creates or hands over and that a path is in; nil if there is none.
    func folder(of path: String) -> String? {
        folders.first { path == $0 || path.hasPrefix($0 + "/") }
    }

    /// Whether it listens on a port of this machine for the server.
    func listens(on port: UInt16) -> Bool {
        sockets.contains { $0 == String(port) || $0.hasSuffix(":\(port)") }
    }
}
