internal import Glibc

/// The process's limit of open files.
package enum DescriptorLimit {
    /// The soft limit.
    package static var current: Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 0 }
        return Int(clamping: limit.rlim_cur)
    }

    /// What is to be said to whoever allows more connections than there can be.
    static func warning(forConnections connections: Int) -> String? {
        // The store, the loops and the log have some too.
        guard current < connections + 64 else { return nil }
        return """
            the limit of open files, \(current), is too low for limits.connections, \(connections); raise it with \
            ulimit -n or LimitNOFILE=
            """
    }

    /// What the soft limit can be raised to.
    package static var most: Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 0 }
        return Int(clamping: limit.rlim_max)
    }

    /// Raises the soft limit to the hard one, where that is allowed, and returns it.
    static func raise() -> Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 0 }
        limit.rlim_cur = limit.rlim_max
        _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        return current
    }
}
