internal import Glibc
internal import Server
internal import Settings
internal import System
internal import TokenStore

/// Checks the data folder: its permissions, its file system and the free space there.
struct FolderCheck {
    private let user: ServerUser
    private static let topic = "Data folder"
    /// Less free space than this is a problem: the WAL takes about 16 MiB beside the database, and so does a checkpoint.
    private static let leastRoom = 64 << 20
    /// Less free space than this is a warning.
    private static let littleRoom = 1 << 30

    init(_ user: ServerUser) {
        self.user = user
    }

    /// - Parameter provider: Nil if it is not known where tokens are stored.
    func findings(_ directory: String, _ provider: (any StoreProvider)?) -> [Finding] {
        let place = Folder.nearest(to: directory)
        var findings: [Finding] = []
        if let status = FileStatus(directory) {
            guard status.isFolder else {
                return [.problem(Self.topic, DataDirectoryError.notADirectory(path: directory))]
            }
            findings +=
                handover(status, directory).map { [$0] }
                ?? permissions(status, directory, provider?.fileNames ?? [])
        } else if user.awaitsFolder(of: directory) {
            findings.append(.ok(Self.topic, "\(directory) does not exist yet; systemd creates it for the service"))
        } else if unsafe access(directory, F_OK) != 0 && errno == EACCES {
            findings.append(inaccessible(directory))
        } else if unsafe access(place, W_OK | X_OK) == 0 {
            findings.append(.ok(Self.topic, "\(directory) does not exist yet; the first start creates it"))
        } else if errno == EROFS {
            findings.append(readOnly(directory))
        } else {
            findings.append(
                user.refusal(
                    Self.topic, "create \(directory), which does not exist, in \(place)",
                    "create it for that user: install -d -m 700 -o \(user.account.name) \(directory)"
                )
            )
        }
        // Otherwise there are only a key ring and a socket, and no tokens.
        guard provider?.fileNames.isEmpty != true else { return findings }
        let disk = FileSystem(of: place)
        findings.append(Self.fileSystem(disk.type, place))
        if let bytes = disk.freeBytes { findings.append(Self.room(bytes, place)) }
        return findings
    }

    /// Warns of a folder that is another user's and that systemd gives to the server's user before it starts the service; nil if
    /// it does not.
    private func handover(_ status: FileStatus, _ directory: String) -> Finding? {
        guard user.awaitsFolder(of: directory), let unit = user.service?.unit else { return nil }
        let (owner, name) = (UserAccount(id: status.user, group: status.group).name, user.account.name)
        return .warning(
            Self.topic, "\(directory) is owned by \(owner); systemd gives it to \(name) when it starts \(unit)",
            "to have its files checked now, chown -R \(name) \(directory), and run the doctor again"
        )
    }

    private func permissions(
        _ status: FileStatus, _ directory: String, _ storeFiles: [String]
    ) -> [Finding] {
        var findings: [Finding] = []
        if let group = status.volumeGroup {
            findings.append(
                .ok(Self.topic, "only its owner and group \(group), that of the pod's volumes, may enter \(directory)"))
        } else if status.isOpenToOthers {
            findings.append(
                .problem(
                    Self.topic, "others may enter \(directory) (mode \(status.permissions))", "chmod 700 \(directory)"
                )
            )
        } else {
            findings.append(.ok(Self.topic, "only its owner may enter \(directory) (mode \(status.permissions))"))
        }
        if unsafe access(directory, R_OK | W_OK | X_OK) != 0 {
            findings.append(errno == EROFS ? readOnly(directory) : inaccessible(directory))
        }
        findings += controlSocket(directory)
        findings += otherOwners(status, directory, storeFiles)
        for name in [DataDirectory.lockName] + storeFiles where FileStatus(directory + "/" + name) != nil {
            findings += user.refusesWriting(directory + "/" + name, Self.topic).map { [$0] } ?? []
        }
        for name in DataDirectory.fileNames + storeFiles {
            findings += FileCheck.secret(directory + "/" + name, Self.topic)
        }
        return findings
    }

    /// Warns of files of another user than the folder's, who may be the server's user if nothing else says who that is.
    private func otherOwners(_ status: FileStatus, _ directory: String, _ storeFiles: [String]) -> [Finding] {
        guard case .folder = user.source else { return [] }
        let names = [DataDirectory.lockName, KeyRingFile.standardName] + storeFiles
        let found = names.lazy.compactMap { name in FileStatus("\(directory)/\(name)").map { (name, $0) } }
        guard let (name, file) = found.first(where: { $1.user != status.user }) else { return [] }
        let (owner, other) = (
            UserAccount(id: status.user, group: status.group).name, UserAccount(id: file.user, group: file.group).name
        )
        return [
            .warning(
                Self.topic, "\(directory) is owned by \(owner), and \(name) in it by \(other)",
                """
                if the server runs as \(other), chown -R \(other) \(directory), and look as that user: token-cache doctor --user \
                \(other); if it runs as \(owner), chown -R \(owner) \(directory)
                """
            )
        ]
    }

    private func readOnly(_ directory: String) -> Finding {
        .problem(
            Self.topic, "\(directory) is on a file system that is read-only",
            "\(DataDirectoryError.readOnlyAdvice), or set data_directory to another folder"
        )
    }

    /// Warns if the path of the control socket is too long; the server then runs without that socket.
    private func controlSocket(_ directory: String) -> [Finding] {
        let path = ControlSocketAddress.path(in: directory)
        guard path.utf8.count > 107 else { return [] }
        return [
            .warning(
                Self.topic,
                "\(path) has more than 107 bytes, too long for a socket: commands cannot reach a running server",
                "set data_directory to a folder with a shorter path"
            )
        ]
    }

    private func inaccessible(_ directory: String) -> Finding {
        user.refusal(Self.topic, "access \(directory)", user.advice(for: directory, permissions: "rwx"))
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
        guard let name = remote[number] else { return .ok(topic, "\(place) is on a local file system") }
        return .problem(
            topic, "\(place) is on \(name), where locks may not exclude other processes and synced data may be lost",
            "set data_directory to a folder on a local disk"
        )
    }

    static func room(_ bytes: Int, _ place: String) -> Finding {
        let text = "\(Quantities.text(mebibytesIn: bytes)) are free on the disk of \(place)"
        let advice = "free some space: on a full disk, tokens are not stored and clients get 50001"
        if bytes < leastRoom { return .problem(topic, text, advice) }
        return bytes < littleRoom ? .warning(topic, text, advice) : .ok(topic, text)
    }
}

extension Quantities {
    /// A size in MiB, or in GiB from 10 GiB on, rounded down.
    static func text(mebibytesIn bytes: Int) -> String {
        bytes >= 10 << 30 ? "\(bytes >> 30) GiB" : "\(bytes >> 20) MiB"
    }
}
