/// A file as the kernel names it in its list of locks (proc(5), `/proc/locks`).
struct LockedFile: Equatable {
    /// Of the file system's device.
    let major: UInt64
    let minor: UInt64
    /// The inode.
    let number: UInt64

    /// The process that holds a lock on the file.
    ///
    /// - Parameter text: The list of locks.
    func process(_ kind: FileLock.Kind, in text: String) -> Int? {
        for line in text.split(separator: "\n") {
            // As in `1: FLOCK  ADVISORY  WRITE 4711 08:01:131130 0 EOF`; a process that waits has an arrow behind the number.
            let words = line.split(separator: " ")
            guard words.count > 5, words[1] == kind.rawValue, LockedFile(listed: words[5]) == self else { continue }
            return Int(words[4])
        }
        return nil
    }
}

extension LockedFile {
    /// Nil if there is no such file, or none that this user may see.
    init?(path: String) {
        guard let status = FileStatus(path) else { return nil }
        let device = status.identity.device
        if let (major, minor) = Self.mountedDevice(path) {
            self.init(major: major, minor: minor, number: status.identity.number)
        } else {
            // As the macros of makedev(3) take the number apart.
            self.init(
                major: (device >> 8) & 0xfff | (device >> 32) & 0xffff_f000,
                minor: device & 0xff | (device >> 12) & 0xffff_ff00, number: status.identity.number)
        }
    }

    /// Reads a name of the list such as `08:01:131130`, whose first two numbers are hexadecimal.
    private init?(listed name: Substring) {
        let parts = name.split(separator: ":")
        guard parts.count == 3, let major = UInt64(parts[0], radix: 16), let minor = UInt64(parts[1], radix: 16),
            let number = UInt64(parts[2])
        else { return nil }
        self.init(major: major, minor: minor, number: number)
    }

    /// The device of the mounted file system that a file is on; nil if it cannot be told.
    ///
    /// On Btrfs, where stat(2) tells the device of the subvolume, the list of locks has this one.
    private static func mountedDevice(_ path: String) -> (UInt64, UInt64)? {
        // O_PATH, which Glibc's module lacks: it needs no right to read the file, and opens no pipe or device.
        guard let descriptor = try? FileDescriptor(opening: path, 0o10000000),
            let facts = TextFile.contents(of: "/proc/self/fdinfo/\(descriptor.number)"),
            let mounts = TextFile.contents(of: "/proc/self/mountinfo")
        else { return nil }
        // As in `mnt_id:	27`.
        let line = facts.split(separator: "\n").first { $0.hasPrefix("mnt_id:") }
        guard let mount = line?.split(whereSeparator: \.isWhitespace).last else { return nil }
        for line in mounts.split(separator: "\n") {
            // As in `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw`.
            let words = line.split(separator: " ", maxSplits: 3)
            guard words.count > 2, words[0] == mount else { continue }
            let numbers = words[2].split(separator: ":").compactMap { UInt64($0) }
            guard numbers.count == 2 else { return nil }
            return (numbers[0], numbers[1])
        }
        return nil
    }
}
