internal import CLinux

/// Images of the memory that the system writes when a program crashes: ours would hold keys and tokens.
package enum CoreDumps {
    package static func turnOff() {
        ResourceLimit.coreDump.set(soft: 0, hard: 0)
        // The limit does not hold for images that go to a program, such as systemd-coredump (core(5)); this does, and keeps
        // other processes of the same user out of our memory (prctl(2), PR_SET_DUMPABLE).
        _ = clinux_set_dumpable(0)
    }
}
