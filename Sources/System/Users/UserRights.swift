internal import CLinux
internal import Glibc

/// Gives up the rights of root for those of another user.
package enum UserRights {
    /// Becomes a user, with the user's groups and without any capability; this process cannot go back.
    ///
    /// All threads change (setuid(2), "C library/kernel differences"). The process should then execute a program, as what it
    /// has opened stays open.
    package static func assume(_ user: UserAccount) throws(SystemError) {
        guard unsafe setgroups(user.groups.count, user.groups) == 0 else { throw SystemError.last("setgroups") }
        guard setgid(user.group) == 0 else { throw SystemError.last("setgid") }
        guard setuid(user.id) == 0 else { throw SystemError.last("setuid") }
    }

    /// Replaces this program by another run of itself; returns only if that fails.
    ///
    /// - Parameter arguments: Without the program's name.
    package static func executeAgain(_ arguments: [String]) -> SystemError {
        // The link leads to the program even if the path to it is closed to this user.
        let program = "/proc/self/exe"
        var pointers = unsafe ([program] + arguments).map { unsafe strdup($0) } + [nil]
        _ = unsafe execv(program, &pointers)
        let error = SystemError.last("execv")
        for index in unsafe pointers.indices { unsafe free(pointers[index]) }
        return error
    }

    /// Where systemd keeps the folders of services whose user exists only while they run (systemd.exec(5), DynamicUser=).
    ///
    /// Only root may enter them; the service sees them through mounts of its own.
    private static let privateFolders = ["/var/lib/private", "/var/log/private", "/var/cache/private", "/run/private"]

    /// Gives this thread, and no other, access to the private folders of services, as the services themselves have it.
    ///
    /// The thread gets a mount namespace of its own, in which an open folder with the same contents takes the place of each
    /// closed one. Call this as root, and then execute a program on the same thread.
    package static func openPrivateFolders() throws(SystemError) {
        let present = privateFolders.filter { FileStatus($0)?.isFolder == true }
        guard !present.isEmpty else { return }
        let newNamespace: Int32 = 0x20000
        guard unshare(newNamespace) == 0 else { throw SystemError.last("unshare") }
        // Otherwise the mounts would appear to all processes.
        try mount("none", "/", "none", Mount.recursive | Mount.isPrivate)
        for folder in present {
            let names = (Folder.names(in: folder) ?? []).filter { FileStatus("\(folder)/\($0)")?.isFolder == true }
            let original = try FileDescriptor(opening: folder, O_RDONLY | O_DIRECTORY)
            try mount("none", folder, "tmpfs", 0, "mode=755")
            for name in names {
                guard unsafe mkdir("\(folder)/\(name)", 0o755) == 0 else { throw SystemError.last("mkdir") }
                try mount("/proc/self/fd/\(original.number)/\(name)", "\(folder)/\(name)", "none", Mount.bind)
            }
        }
    }

    /// Flags of mount(2).
    private enum Mount {
        static let bind: UInt = 4096
        static let recursive: UInt = 16384
        static let isPrivate: UInt = 1 << 18
    }

    private static func mount(
        _ source: String, _ target: String, _ type: String, _ flags: UInt, _ data: String = ""
    ) throws(SystemError) {
        guard unsafe CLinux.mount(source, target, type, flags, data) == 0 else { throw SystemError.last("mount") }
    }
}
