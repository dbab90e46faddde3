internal import System

extension DescriptorLimit {
    /// A warning if the limit is too low for as many connections as the settings allow; nil if it suffices.
    static func warning(forConnections connections: Int) -> String? {
        // The store, the loops and the log need descriptors too.
        guard current < connections + 64 else { return nil }
        return """
            the limit of open files, \(current), is too low for limits.connections, \(connections); raise it with \
            ulimit -n or LimitNOFILE=
            """
    }
}
