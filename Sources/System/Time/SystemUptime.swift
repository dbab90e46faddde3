internal import CLinux
internal import Glibc

/// How long the system has been running.
package enum SystemUptime {
    /// Seconds since the system's start, suspension included.
    package static var seconds: Int64 { Int64(now) }

    /// The same, with fractions of a second.
    package static var now: Double {
        var time = timespec()
        _ = unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}
