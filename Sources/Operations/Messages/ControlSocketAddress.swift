internal import Settings
internal import TokenStore

/// Where the control socket is, and how much a request there may hold: what servers and commands have to agree on.
enum ControlSocketAddress {
    /// Bytes of a request's body: of an import's batch, or of the largest file that it reads as long as most of that needs no
    /// escapes.
    static let bodyLimit = 65 << 20

    /// The path of the socket's file in a data folder.
    static func path(in directory: String) -> String { directory + "/" + DataDirectory.controlSocketName }

    /// The path of the socket of the server that has these settings.
    static func path(_ settings: Settings) -> String { path(in: settings.dataDirectoryPath) }
}
