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
