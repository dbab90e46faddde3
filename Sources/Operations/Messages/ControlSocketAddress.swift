internal import Settings
internal import TokenStore

/// The control socket's path and the size limit of its requests, which server and commands share.
enum ControlSocketAddress {
    /// The largest body of a request in bytes: room for a batch of an import, or for the largest file that an import reads if
    /// few of its characters need escapes in JSON.
    static let bodyLimit = 65 << 20

    /// The path of the socket in a data folder.
    static func path(in directory: String) -> String { directory + "/" + DataDirectory.controlSocketName }

    /// The path of the socket of the server that has these settings.
    static func path(_ settings: Settings) -> String { path(in: settings.dataDirectoryPath) }
}
