package import System

extension DescriptorLimit {
    /// The lowest limit with which a server starts, if nothing but its loops and its store on this machine needs files.
    ///
    /// - Parameter loops: Their number as in the settings.
    package static func lowest(forLoops loops: Int?) -> Int { 16 + 4 * (loops ?? Processors.usable) }

    /// Whether a limit allows as many connections as the settings.
    package static func suffices(_ limit: Int, forConnections connections: Int) -> Bool {
        // The store, the loops and the log need descriptors too.
        limit >= connections + 64
    }

    /// A warning if the limit is too low for as many connections as the settings allow; nil if it suffices.
    static func warning(forConnections connections: Int) -> String? {
        guard !suffices(current, forConnections: connections) else { return nil }
        return """
            the limit of open files, \(current), is too low for limits.connections, \(connections); raise it with \
            ulimit -n or LimitNOFILE=
            """
    }
}
