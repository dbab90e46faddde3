internal import Glibc

/// A user of this machine, with the groups that the user's processes have.
package struct UserAccount: Codable, Hashable, Sendable {
    /// The name, or the id if the user has no name.
    package let name: String
    package let id: UInt32
    package let group: UInt32
    package let groups: [UInt32]

    package init(name: String, id: UInt32, group: UInt32, groups: [UInt32]) {
        self.name = name
        self.id = id
        self.group = group
        self.groups = groups
    }

    /// Finds a user by name or by id; nil if there is none of that name.
    package init?(_ text: String) {
        if let entry = unsafe getpwnam(text) {
            let (id, group) = unsafe (entry.pointee.pw_uid, entry.pointee.pw_gid)
            self.init(name: text, id: id, group: group, groups: Self.groups(of: text, group))
        } else if let id = UInt32(text), id != .max {
            self.init(id: id, group: id)
        } else {
            return nil
        }
    }

    /// - Parameters:
    ///   - id: Of the user, who may have no name.
    ///   - group: The group of a user without a name.
    package init(id: UInt32, group: UInt32) {
        guard let entry = unsafe getpwuid(id) else {
            self.init(name: String(id), id: id, group: group, groups: [group])
            return
        }
        let (name, own) = unsafe (String(cString: entry.pointee.pw_name), entry.pointee.pw_gid)
        self.init(name: name, id: id, group: own, groups: Self.groups(of: name, own))
    }

    /// The user of a process; nil if there is no such process.
    package init?(process: Int) {
        var lists: [Substring: [UInt32]] = [:]
        for line in (TextFile.contents(of: "/proc/\(process)/status") ?? "").split(separator: "\n") {
            // As in `Uid:	1000	1000	1000	1000`: the real id, the effective one, and others.
            let parts = line.split(separator: ":", maxSplits: 1)
            guard parts.count == 2, ["Uid", "Gid", "Groups"].contains(parts[0]) else { continue }
            lists[parts[0]] = parts[1].split(whereSeparator: \.isWhitespace).compactMap { UInt32($0) }
        }
        guard let users = lists["Uid"], users.count > 1, let groups = lists["Gid"], groups.count > 1 else { return nil }
        let name = UserAccount(id: users[1], group: groups[1]).name
        self.init(name: name, id: users[1], group: groups[1], groups: lists["Groups"] ?? [])
    }

    /// The user of this process.
    package static var present: UserAccount { UserAccount(id: geteuid(), group: getegid()) }

    /// The id of a group; nil if there is no group of that name.
    package static func group(named name: String) -> UInt32? {
        guard let entry = unsafe getgrnam(name) else { return nil }
        return unsafe entry.pointee.gr_gid
    }

    private static func groups(of name: String, _ group: UInt32) -> [UInt32] {
        var count: Int32 = 1 << 16
        var groups = [gid_t](repeating: 0, count: Int(count))
        guard unsafe getgrouplist(name, group, &groups, &count) >= 0 else { return [group] }
        return Array(groups.prefix(Int(count)))
    }
}
