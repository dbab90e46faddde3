import Glibc
import Server
import Settings
import System
import TokenStore

/// Checks the data folder: its permissions, its file system and the free space there.
///
/// `StartCheck` finds whether this user may use it.
enum FolderCheck {
    private static let topic = "Data folder"
    /// Less free space than this is a problem: the WAL takes about 8 MiB beside the database, and so does a checkpoint.
    private static let leastRoom = 64 << 20
    /// Less free space than this is a warning.
    private static let littleRoom = 1 << 30
    /// Room for fewer further files is a problem, as the store has a dozen.
    private static let leastFiles = 16

    /// - Parameter provider: Nil if it is not known where tokens are stored.
    static func findings(_ directory: String, _ provider: (any StoreProvider)?) -> [Finding] {
        let place = Folder.nearest(to: directory)
        var findings: [Finding] = []
        if let status = FileStatus(directory) {
            findings += permissions(status, directory, (provider as? any FileStoreProvider)?.fileNames ?? [])
        } else if errno == ENOENT {
            findings.append(.ok(topic, "\(directory) does not exist yet; the first start creates it"))
        }
        // Without files of a store, the folder has only a key ring and a socket, for which any file system will do.
        if provider is any SharedStoreProvider { return findings }
        let disk = FileSystem(of: place)
        findings.append(fileSystem(disk.type, place))
        if let space = disk.space { findings.append(room(space, place)) }
        return findings
    }

    private static func permissions(
        _ status: FileStatus, _ directory: String, _ storeFiles: [String]
    ) -> [Finding] {
        var findings: [Finding] = []
        if let group = status.volumeGroup {
            findings.append(
                .ok(
                    topic,
                    status.mode & 0o007 == 0
                        ? "only its owner and group \(group), that of the pod's volumes, may enter \(directory)"
                        : "only containers that mount the volume of \(directory) may enter it (mode \(status.permissions))"
                ))
        } else if status.isOpenToOthers {
            let isOwn = [0, status.user].contains(geteuid())
            let advice = "chmod 700 \(directory)"
            findings.append(
                .problem(
                    topic, "others may enter \(directory) (mode \(status.permissions))",
                    isOwn ? advice : "as root: chown \(UserName.present) \(directory) && \(advice)"))
        } else {
            findings.append(.ok(topic, "only its owner may enter \(directory) (mode \(status.permissions))"))
        }
        for name in DataDirectory.fileNames + storeFiles {
            findings += FileCheck.secret(directory + "/" + name, topic)
        }
        return findings
    }

    /// Network file systems and those in user space, by the magic numbers of statfs(2).
    private static let remote: [UInt32: String] = [
        0x6969: "NFS", 0xff53_4d42: "CIFS", 0xfe53_4d42: "SMB", 0x517b: "SMB", 0x0102_1997: "9P", 0x6573_5546: "FUSE",
        0x00c3_6400: "Ceph", 0x5346_414f: "AFS",
    ]

    /// - Parameters:
    ///   - number: The file system's magic number, as statfs(2) lists them.
    ///   - place: The path, for the text.
    static func fileSystem(_ number: UInt32, _ place: String) -> Finding {
        let isOverlay = number == 0x794c_7630
        if number == 0x0102_1994 || isOverlay && FileSystem.options(of: place).contains("volatile") {
            return .warning(
                topic, "\(place) is in memory, or in a volatile overlay: nothing is left when the machine loses power",
                "set data_directory to a folder on a disk"
            )
        }
        guard let name = remote[number] else { return .ok(topic, "\(place) is on a local file system") }
        return .problem(
            topic, "\(place) is on \(name), where locks may not exclude other processes and synced data may be lost",
            "set data_directory to a folder on a local disk"
        )
    }

    /// The warning about the file system that a server logs at its start; nil if there is none.
    static func warning(_ directory: String) -> String? {
        let found = fileSystem(FileSystem(of: directory).type, directory)
        return found.state == .ok ? nil : "\(found.text); \(found.advice)"
    }

    static func room(_ space: FileSystem.Space, _ place: String) -> Finding {
        let bytes = space.freeBytes
        let text = "\(Quantities.text(mebibytesIn: bytes)) are free on the disk of \(place)"
        let advice = "free some space: on a full disk, tokens are not stored and clients get 50001"
        if bytes < leastRoom { return .problem(topic, text, advice) }
        if space.inodes > 0, space.freeInodes < leastFiles {
            return .problem(
                topic, "the disk of \(place) has room for \(space.freeInodes) further files (inodes)",
                "remove files that other programs have put there; du --inodes shows where they are")
        }
        return bytes < littleRoom ? .warning(topic, text, advice) : .ok(topic, text)
    }
}

extension Quantities {
    /// A size in MiB, or in GiB from 10 GiB on, rounded down.
    static func text(mebibytesIn bytes: Int) -> String {
        bytes >= 10 << 30 ? "\(bytes >> 30) GiB" : "\(bytes >> 20) MiB"
    }
}

/// Checks the permissions of files.
enum FileCheck {
    /// The settings file: it contains no secrets, but says where they are, so that only its owner should write it.
    static func settingsFile(_ path: String) -> [Finding] {
        check(path, "Settings", { $0.mode & 0o022 != 0 }, "others may write \(path)", "chmod go-w \(path)")
    }

    /// A file that only the server's user should read.
    static func secret(_ path: String, _ topic: String) -> [Finding] {
        check(path, topic, \.isOpenToOthers, "others may read or write \(path)", "chmod 600 \(path)")
    }

    /// A private key, which a group of programs may share.
    static func privateKey(_ path: String, _ topic: String) -> [Finding] {
        check(
            path, topic, { $0.mode & 0o027 != 0 }, "others may read or write the private key \(path)",
            "chmod 600 \(path), or 640 for a group; if another user may have read it, replace key and certificate")
    }

    private static func check(
        _ path: String, _ topic: String, _ isWrong: (FileStatus) -> Bool, _ text: String, _ advice: String
    ) -> [Finding] {
        guard let status = FileStatus(path), !status.isFolder, isWrong(status) else { return [] }
        return [.problem(topic, "\(text) (mode \(status.permissions))", advice)]
    }
}
