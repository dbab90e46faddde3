internal import CLinux
internal import Glibc

/// Reads the limits of a process's control groups (cgroups(7)).
///
/// A group's limit holds for all groups below it: the lowest limit of a group and its ancestors is the one in force.
package struct ControlGroups {
    /// The hierarchies that the process is in: the controllers of version 1, none for version 2, and the group's path.
    private var memberships: [(controllers: [Substring], path: Substring)] = []
    /// Where the hierarchies are mounted.
    private let folder: String

    /// The control groups of this process; nil if the system has none.
    package static var own: ControlGroups? {
        guard let text = TextFile.contents(of: "/proc/self/cgroup") else { return nil }
        return ControlGroups(text, under: "/sys/fs/cgroup")
    }

    /// - Parameters:
    ///   - text: The process's `/proc/PID/cgroup`: a line `number:controllers:path` for each hierarchy.
    ///   - folder: Has version 2 itself or in `unified`, and the hierarchies of version 1 in folders named after their
    ///     controllers.
    package init(_ text: String, under folder: String) {
        self.folder = folder
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { continue }
            memberships.append((parts[1].split(separator: ","), parts[2]))
        }
    }

    /// The contents of a file of version 2, for each group that has it.
    package func texts(of file: String) -> [String] {
        memberships.filter(\.controllers.isEmpty).flatMap { membership in
            lineage(of: membership.path, in: [folder, "\(folder)/unified"]).compactMap { Self.text("\($0)/\(file)") }
        }
    }

    /// The contents of files of version 1, for each group that has all of them.
    package func texts(of files: [String], controller: String) -> [[String]] {
        memberships.filter { $0.controllers.contains { $0 == controller } }.flatMap { membership in
            let mounts = ["\(folder)/\(membership.controllers.joined(separator: ","))", "\(folder)/\(controller)"]
            return lineage(of: membership.path, in: mounts).compactMap { group in
                let texts = files.compactMap { Self.text("\(group)/\($0)") }
                return texts.count == files.count ? texts : nil
            }
        }
    }

    /// The folders of a group and its ancestors.
    ///
    /// In a container, the mount may begin at the container's own group although the path does not: the folders of the path
    /// are then missing, and the root has the limit.
    private func lineage(of path: Substring, in mounts: [String]) -> [String] {
        mounts.flatMap { mount in
            var lineage = [mount]
            // A process that was moved out of its namespace has a path that leads up and out of it.
            for name in path.split(separator: "/") where name != ".." {
                lineage.append("\(lineage[lineage.count - 1])/\(name)")
            }
            return lineage
        }
    }

    private static func text(_ path: String) -> String? {
        guard let text = TextFile.contents(of: path) else { return nil }
        return text.last == "\n" ? String(text.dropLast()) : text
    }
}

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

/// The memory that this process may use.
package enum SystemMemory {
    /// In bytes: the machine's, or less where a control group allows less; 0 if it cannot be told.
    package static var bytes: Int {
        let machine = max(0, sysconf(Int32(_SC_PHYS_PAGES))) * max(0, sysconf(Int32(_SC_PAGESIZE)))
        return min(machine, ControlGroups.own.flatMap(limit) ?? .max)
    }

    /// What control groups allow, in bytes; nil for no limit.
    ///
    /// `memory.max` is a number or `max` (kernel: admin-guide/cgroup-v2), `memory.limit_in_bytes` of version 1 a number, which
    /// without a limit is larger than any memory.
    package static func limit(_ groups: ControlGroups) -> Int? {
        let texts =
            groups.texts(of: "memory.max")
            + groups.texts(of: ["memory.limit_in_bytes"], controller: "memory").flatMap(\.self)
        return texts.compactMap { Int($0) }.min()
    }
}

/// The name of this machine.
package enum MachineName {
    /// As gethostname(2) has it; empty if the system does not tell.
    package static var current: String {
        // HOST_NAME_MAX is 64 (gethostname(2)); the last byte stays 0.
        var bytes = [CChar](repeating: 0, count: 256)
        guard unsafe gethostname(&bytes, bytes.count - 1) == 0 else { return "" }
        return String(decoding: bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

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
