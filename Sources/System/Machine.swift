import CLinux
import Glibc

/// Reads the limits of this process's control group and of those above it, of which the lowest is in force (cgroups(7)).
///
/// Only version 2 counts: where version 1 limits the processor time, there are more threads than it can keep busy.
package struct ControlGroup {
    /// The folders of the group and of those above it.
    private let folders: [String]

    /// The control group of this process; nil if the system has none.
    static var own: ControlGroup? {
        TextFile.contents(of: "/proc/self/cgroup").flatMap { ControlGroup($0, under: "/sys/fs/cgroup") }
    }

    /// - Parameters:
    ///   - text: The process's `/proc/PID/cgroup`, of which only the line `0::path` is used.
    ///   - folder: Where the hierarchy is mounted.
    package init?(_ text: String, under folder: String) {
        guard let line = text.split(separator: "\n").first(where: { $0.hasPrefix("0::/") }) else { return nil }
        // In a container, the mount may begin at the container's own group although the path does not: the folders of the path are
        // then missing, and the root has the limit. A process that was moved out of its namespace has a path that leads up.
        folders = line.dropFirst(4).split(separator: "/").filter { $0 != ".." }
            .reduce(into: [folder]) { $0.append("\($0[$0.count - 1])/\($1)") }
    }

    /// The words of a file, for each group that has it.
    func words(of file: String) -> [[Substring]] {
        folders.compactMap { TextFile.contents(of: "\($0)/\(file)")?.split { $0.isWhitespace } }
    }
}

/// How many cores this process may use.
package enum Processors {
    /// The number of cores in the affinity mask (taskset(1)), or the quota of the control group if that is lower
    /// (containers, `CPUQuota=`).
    package static var usable: Int {
        let processors = max(1, affinityCount)
        guard let quota = ControlGroup.own.flatMap(quota) else { return processors }
        return min(processors, max(1, Int(quota.rounded(.up))))
    }

    /// The number of cores in the affinity mask (sched_getaffinity(2)); `ProcessInfo` counts all cores of the machine.
    private static var affinityCount: Int {
        // Room for 4,096 cores.
        var mask = [UInt64](repeating: 0, count: 64)
        let size = unsafe sched_getaffinity(0, UInt(mask.count * MemoryLayout<UInt64>.size), &mask)
        return size < 0 ? 1 : mask.reduce(0) { $0 + $1.nonzeroBitCount }
    }

    /// The processor time that the control group allows, in cores; nil without a limit.
    ///
    /// `cpu.max` contains quota and period in microseconds, or `max` for no quota (kernel: admin-guide/cgroup-v2).
    static func quota(_ group: ControlGroup) -> Double? {
        group.words(of: "cpu.max").compactMap { pair in
            guard pair.count == 2, let quota = Int(pair[0]), let period = Int(pair[1]), quota > 0, period > 0 else {
                return nil
            }
            return Double(quota) / Double(period)
        }.min()
    }
}

/// The memory that this process may use.
package enum SystemMemory {
    /// In bytes: the machine's memory, or the control group's limit if that is lower; 0 if unknown.
    package static var bytes: Int {
        let machine = max(0, sysconf(Int32(_SC_PHYS_PAGES))) * max(0, sysconf(Int32(_SC_PAGESIZE)))
        return min(machine, ControlGroup.own.flatMap(limit) ?? .max)
    }

    /// The control group's limit in bytes; nil if there is none (`max` in `memory.max`).
    package static func limit(_ group: ControlGroup) -> Int? {
        group.words(of: "memory.max").compactMap { $0.first.flatMap { Int($0) } }.min()
    }
}

/// How long the system has been running.
package enum SystemUptime {
    /// Seconds since the system's start, suspension included.
    package static var seconds: Int64 { Int64(now) }

    /// The same with fractions of a second.
    package static var now: Double {
        let time = timespec.now(CLOCK_BOOTTIME)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// The same as a moment.
    ///
    /// Do not compare it with `MonotonicTime.now`, whose clock stands still while the machine is suspended.
    package static var moment: MonotonicTime {
        let time = timespec.now(CLOCK_BOOTTIME)
        return MonotonicTime(nanoseconds: UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec))
    }
}

/// The version of the kernel.
package enum KernelRelease {
    /// Such as `6.12.48-amd64`; not from /proc, where a service with `ProcSubset=pid` does not see it.
    package static var present: String {
        var names = utsname()
        _ = unsafe uname(&names)
        // Swift imports C's array as a tuple, whose elements only a mirror lists.
        let characters = Mirror(reflecting: names.release).children.compactMap { $0.value as? CChar }
        return String(decoding: characters.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
