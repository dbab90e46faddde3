internal import Glibc

/// Images of the memory that the system writes when a program crashes: ours would hold keys and tokens.
enum CoreDumps {
    static func turnOff() {
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
    }
}
