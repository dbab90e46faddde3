internal import Foundation
internal import Glibc

/// The memory that this process may use.
enum SystemMemory {
    /// In bytes: the machine's, or less where a control group allows less; 0 when it cannot be told.
    static var bytes: Int {
        let machine = max(0, sysconf(Int32(_SC_PHYS_PAGES))) * max(0, sysconf(Int32(_SC_PAGESIZE)))
        return min(machine, controlGroupLimit ?? .max)
    }

    /// `memory.max` of control groups v2, a number or `max` (kernel: admin-guide/cgroup-v2).
    private static var controlGroupLimit: Int? {
        guard let groups = try? String(contentsOfFile: "/proc/self/cgroup", encoding: .utf8),
            let group = groups.split(separator: "\n").first(where: { $0.hasPrefix("0::") }),
            let limit = try? String(contentsOfFile: "/sys/fs/cgroup\(group.dropFirst(3))/memory.max", encoding: .utf8)
        else { return nil }
        return Int(limit.trimmingCharacters(in: .whitespacesAndNewlines))
    }
}
