internal import Glibc

/// A resource limit of this process (getrlimit(2)).
struct ResourceLimit {
    private let resource: __rlimit_resource_t

    /// How many descriptors may be open.
    static let descriptors = ResourceLimit(RLIMIT_NOFILE)
    /// The size of core dumps.
    static let coreDump = ResourceLimit(RLIMIT_CORE)

    private init(_ resource: __rlimit_resource) {
        self.resource = __rlimit_resource_t(resource.rawValue)
    }

    /// Nil if the system does not tell.
    var values: (soft: UInt64, hard: UInt64)? {
        var limit = rlimit()
        guard unsafe getrlimit(resource, &limit) == 0 else { return nil }
        return (UInt64(limit.rlim_cur), UInt64(limit.rlim_max))
    }

    /// Without effect if it is not allowed.
    func set(soft: UInt64, hard: UInt64) {
        var limit = rlimit(rlim_cur: rlim_t(soft), rlim_max: rlim_t(hard))
        _ = unsafe setrlimit(resource, &limit)
    }
}
