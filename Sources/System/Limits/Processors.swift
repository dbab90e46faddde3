internal import CLinux

/// How many cores this process may use.
package enum Processors {
    /// The number of cores in the affinity mask (taskset(1)), or the quota of the control group if that is lower
    /// (containers, `CPUQuota=`).
    package static var usable: Int {
        let processors = max(1, affinityCount)
        guard let quota = ControlGroups.own.flatMap(quota) else { return processors }
        return min(processors, max(1, Int(quota.rounded(.up))))
    }

    /// The number of cores in the affinity mask (sched_getaffinity(2)); `ProcessInfo` counts all cores of the machine.
    private static var affinityCount: Int {
        // Room for 4,096 cores.
        var mask = [UInt64](repeating: 0, count: 64)
        let size = unsafe sched_getaffinity(0, UInt(mask.count * MemoryLayout<UInt64>.size), &mask)
        return size < 0 ? 1 : mask.reduce(0) { $0 + $1.nonzeroBitCount }
    }

    /// The processor time that control groups allow, in cores; nil without a limit.
    ///
    /// `cpu.max` contains quota and period in microseconds, or `max` for no quota (kernel: admin-guide/cgroup-v2). In
    /// version 1 each has its own file, and a quota of -1 means none (kernel: scheduler/sched-bwc).
    static func quota(_ groups: ControlGroups) -> Double? {
        let pairs =
            groups.texts(of: "cpu.max").map { $0.split { $0.isWhitespace }.map(String.init) }
            + groups.texts(of: ["cpu.cfs_quota_us", "cpu.cfs_period_us"], controller: "cpu")
        return pairs.compactMap { pair in
            guard pair.count == 2, let quota = Int(pair[0]), let period = Int(pair[1]), quota > 0, period > 0 else {
                return nil
            }
            return Double(quota) / Double(period)
        }.min()
    }
}
