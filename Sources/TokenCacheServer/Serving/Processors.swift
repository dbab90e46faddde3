internal import CLinux
internal import Foundation

/// How many cores this process may use.
enum Processors {
    /// The cores of the affinity mask (`taskset`), or fewer where a control group allows less time (containers).
    static var usable: Int {
        let processors = max(1, affinityCount)
        guard let quota = controlGroupQuota else { return processors }
        return min(processors, max(1, Int(quota.rounded(.up))))
    }

    /// The bits of the affinity mask (sched_getaffinity(2)); `ProcessInfo` counts the machine's cores instead.
    private static var affinityCount: Int {
        // Room for 4,096 cores.
        var mask = [UInt64](repeating: 0, count: 64)
        let size = unsafe sched_getaffinity(0, UInt(mask.count * MemoryLayout<UInt64>.size), &mask)
        return size < 0 ? 1 : mask.reduce(0) { $0 + $1.nonzeroBitCount }
    }

    /// `cpu.max` of control groups v2: quota and period in microseconds, or `max` (kernel: admin-guide/cgroup-v2).
    private static var controlGroupQuota: Double? {
        guard let text = try? String(contentsOfFile: "/sys/fs/cgroup/cpu.max", encoding: .utf8) else { return nil }
        let parts = text.split { $0.isWhitespace }
        guard parts.count == 2, let quota = Double(parts[0]), let period = Double(parts[1]), period > 0 else {
            return nil
        }
        return quota / period
    }
}
