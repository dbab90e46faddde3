internal import Glibc

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
