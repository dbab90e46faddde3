internal import Glibc
internal import System

/// What the process uses, read with less work than `ProcessMetrics`, because it is read every second.
struct ResourceUsage {
    /// In user and kernel mode.
    let processorSeconds: Double
    /// Nil without /proc.
    let residentBytes: Int?

    /// The current figures; reads a file of the kernel.
    static var now: ResourceUsage {
        var usage = rusage()
        _ = unsafe getrusage(Int32(RUSAGE_SELF.rawValue), &usage)
        let times = [usage.ru_utime, usage.ru_stime]
        // Pages: the whole size, and those that are resident (proc(5)).
        let pages = TextFile.contents(of: "/proc/self/statm")?.split(separator: " ").dropFirst().first
        return ResourceUsage(
            processorSeconds: times.reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6 },
            residentBytes: pages.flatMap { Int($0) }.map { $0 * sysconf(Int32(_SC_PAGESIZE)) }
        )
    }
}
