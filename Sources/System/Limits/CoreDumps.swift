internal import CLinux

/// Core dumps of this process, which would contain keys and tokens.
package enum CoreDumps {
    package static func turnOff() {
        ResourceLimit.coreDump.set(soft: 0, hard: 0)
        // The limit does not apply to dumps that are piped to a program such as systemd-coredump (core(5)). This does, and
        // keeps other processes of the same user from reading our memory (prctl(2), PR_SET_DUMPABLE).
        _ = clinux_set_dumpable(0)
    }
}
