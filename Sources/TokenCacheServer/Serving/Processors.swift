internal import Foundation

/// How many cores this process may use.
enum Processors {
    /// The cores of the affinity mask (`taskset`), or fewer where a control group allows less time (containers).
    static var usable: Int {
        let processors = max(1, ProcessInfo.processInfo.activeProcessorCount)
        guard let quota = controlGroupQuota else { return processors }
        return min(processors, max(1, Int(quota.rounded(.up))))
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
