internal import Glibc

extension FileStatus {
    /// Whether users other than the owner may read or write the file, or enter the folder.
    ///
    /// In a pod of Kubernetes, a group that the pod's processes are in for the sake of their volumes (`fsGroup`) does not count:
    /// kubelet gives it access to all files of a volume whenever it mounts one. The operator sees to it that no other pod has
    /// this group.
    package var isOpenToOthers: Bool {
        mode & 0o077 != 0 && volumeGroup == nil
    }

    /// The group of the volume that the file is on, if the file is open to nobody else.
    package var volumeGroup: UInt32? {
        Self.isInPod ? volumeGroup(ofUser: geteuid(), groups: Self.groups) : nil
    }

    /// - Parameters:
    ///   - user: Of the process.
    ///   - groups: Those that the process is in besides its own.
    func volumeGroup(ofUser user: UInt32, groups: [UInt32]) -> UInt32? {
        guard mode & 0o070 != 0, mode & 0o007 == 0, self.user == user || self.user == 0, group != 0 else { return nil }
        return groups.contains(group) ? group : nil
    }

    /// Kubernetes sets the variable in all containers (kubernetes.io/docs/concepts/services-networking/service).
    private static var isInPod: Bool { unsafe getenv("KUBERNETES_SERVICE_HOST") != nil }

    /// The groups of this process besides its own; getgroups(2) fills at most as many as there is room for.
    private static var groups: [UInt32] {
        var groups = [gid_t](repeating: 0, count: max(0, Int(getgroups(0, nil))))
        let count = unsafe getgroups(Int32(groups.count), &groups)
        return Array(groups.prefix(max(0, Int(count))))
    }
}
