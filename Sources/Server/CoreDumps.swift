internal import CLinux
internal import Glibc

/// Images of the memory that the system writes when a program crashes: ours would hold keys and tokens.
enum CoreDumps {
    static func turnOff() {
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        // The limit does not hold for images that go to a program, such as systemd-coredump (core(5)); this does, and keeps
        // other processes of the same user out of our memory (prctl(2), PR_SET_DUMPABLE).
        _ = clinux_set_dumpable(0)
    }
}
