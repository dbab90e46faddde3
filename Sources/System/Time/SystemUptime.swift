internal import CLinux
internal import Glibc

/// How long the system has been running.
package enum SystemUptime {
    /// Seconds since the system's start, suspension included.
    package static var seconds: Int64 {
        var time = timespec()
        _ = unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        return Int64(time.tv_sec)
    }
}
