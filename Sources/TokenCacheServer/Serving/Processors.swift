internal import CLinux
internal import Foundation

/// How many cores this process may use.
enum Processors {
    /// The cores of the affinity mask (`taskset`), or fewer where a control group allows less time (containers, `CPUQuota=`).
    static var usable: Int {
        let processors = max(1, affinityCount)
        guard let groups = try? String(contentsOfFile: "/proc/self/cgroup", encoding: .utf8),
            let quota = quota(of: groups, under: "/sys/fs/cgroup")
        else { return processors }
        return min(processors, max(1, Int(quota.rounded(.up))))
    }

    /// The bits of the affinity mask (sched_getaffinity(2)); `ProcessInfo` counts the machine's cores instead.
    private static var affinityCount: Int {
        // Room for 4,096 cores.
        var mask = [UInt64](repeating: 0, count: 64)
        let size = unsafe sched_getaffinity(0, UInt(mask.count * MemoryLayout<UInt64>.size), &mask)
        return size < 0 ? 1 : mask.reduce(0) { $0 + $1.nonzeroBitCount }
    }

    // MARK: - Control groups

    /// The processor time that the control groups of a process allow, in cores; nil for no limit.
    ///
    /// Each group's limit holds for all groups below it, so that the least of the group's own and its ancestors' counts.
    ///
    /// - Parameters:
    ///   - groups: The process's `/proc/PID/cgroup`: a line `number:controllers:path` for each hierarchy (cgroups(7)); that of
    ///     version 2 names no controllers.
    ///   - folder: Where the hierarchies are mounted: version 2 itself or in `unified`, those of version 1 in folders named
    ///     after their controllers.
    static func quota(of groups: String, under folder: String) -> Double? {
        var least: Double?
        for line in groups.split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { continue }
            let (controllers, path) = (String(parts[1]), String(parts[2]))
            let mounts: [String]
            let read: (String) -> Double?
            if controllers.isEmpty {
                (mounts, read) = ([folder, "\(folder)/unified"], quotaInVersion2)
            } else if controllers.split(separator: ",").contains("cpu") {
                (mounts, read) = (["\(folder)/\(controllers)", "\(folder)/cpu"], quotaInVersion1)
            } else {
                continue
            }
            for mount in mounts {
                for group in lineage(of: path) {
                    guard let quota = read(mount + group) else { continue }
                    least = min(least ?? quota, quota)
                }
            }
        }
        return least
    }

    /// A group and its ancestors, each as a path below the mount; the root's is empty.
    ///
    /// In a container the mount may begin at the container's own group, of which the path does not know: the folders of the
    /// path are then missing, and the root has the limit.
    private static func lineage(of path: String) -> [String] {
        var lineage = [""]
        // With a namespace of its own, a process that was moved out of it sees a path that leads up and out.
        for name in path.split(separator: "/") where name != ".." {
            lineage.append("\(lineage[lineage.count - 1])/\(name)")
        }
        return lineage
    }

    /// `cpu.max`: quota and period in microseconds, or `max` for no quota (kernel: admin-guide/cgroup-v2).
    private static func quotaInVersion2(_ group: String) -> Double? {
        guard let text = try? String(contentsOfFile: "\(group)/cpu.max", encoding: .utf8) else { return nil }
        let parts = text.split { $0.isWhitespace }
        return parts.count == 2 ? ratio(parts[0], parts[1]) : nil
    }

    /// `cpu.cfs_quota_us`, -1 for no quota, and `cpu.cfs_period_us` (kernel: scheduler/sched-bwc).
    private static func quotaInVersion1(_ group: String) -> Double? {
        guard let quota = try? String(contentsOfFile: "\(group)/cpu.cfs_quota_us", encoding: .utf8),
            let period = try? String(contentsOfFile: "\(group)/cpu.cfs_period_us", encoding: .utf8)
        else { return nil }
        return ratio(quota[...], period[...])
    }

    private static func ratio(_ quota: Substring, _ period: Substring) -> Double? {
        func number(_ text: Substring) -> Int? { Int(text.trimmingCharacters(in: .whitespacesAndNewlines)) }
        guard let quota = number(quota), let period = number(period), quota > 0, period > 0 else { return nil }
        return Double(quota) / Double(period)
    }
}
