internal import FoundationEssentials
internal import Glibc
internal import System

/// With whose rights the doctor tries everything: those of its own process.
///
/// They are the server's if it runs as the server does, of which the owner of the data folder is the sign.
struct Rights {
    private let directory: String
    private let name = UserName.present
    /// The owner of the data folder; nil if there is no such folder, or if this user may not look at it.
    private let owner: UInt32?
    private let isHidden: Bool

    /// - Parameter directory: The data folder.
    init(directory: String) {
        self.directory = directory
        do throws(SystemError) {
            (owner, isHidden) = (try FileStatus.read(directory).user, false)
        } catch {
            (owner, isHidden) = (nil, error.isPermissionDenied)
        }
    }

    /// Whether the server has the same rights, as far as can be seen.
    ///
    /// Before the first start of a service there is no folder, and root is not the service's user.
    private var areServers: Bool {
        owner.map { $0 == geteuid() } ?? (!isHidden && !(geteuid() == 0 && Self.isUnitInstalled))
    }

    private static let topic = "User"

    /// With whose rights the findings were made, and how to have them made with the server's.
    var findings: [Finding] {
        let service = Self.isUnitInstalled
        let start = "systemctl start token-cache-doctor, and look with journalctl -eu token-cache-doctor"
        var findings: [Finding] = []
        if areServers {
            findings.append(.ok(Self.topic, "everything was tried with the rights of \(name)"))
        } else {
            let other = owner.map { UserName.of($0) }
            let unknown = isHidden ? "\(name) may not see who owns \(directory)" : "\(directory) does not exist yet"
            let text = other.map { "\(directory) is owned by \($0)" } ?? unknown
            let command = "runuser -u \(other ?? "USER") -- token-cache doctor, with the same options"
            findings.append(
                .warning(
                    Self.topic, "\(text), and everything was tried with the rights of \(name)",
                    "look as the server's user: as root, \(service ? start : command)"))
        }
        if service {
            findings.append(
                .ok("Service", "what the unit of the service keeps from the server was not tried: as root, \(start)"))
        }
        return findings
    }

    /// Whether there is a unit that runs the doctor as the service, and this is not its process.
    private static var isUnitInstalled: Bool {
        let variables = ProcessInfo.processInfo.environment
        guard variables["INVOCATION_ID"] == nil else { return false }
        // As systemd searches them (systemd.unit(5)).
        let folders = variables["SYSTEMD_UNIT_PATH"] ?? "/etc/systemd/system:/usr/lib/systemd/system"
        return folders.split(separator: ":").contains { FileStatus("\($0)/token-cache-doctor.service") != nil }
    }

    // MARK: - Findings that are made by trying

    /// Reports what this user may not do.
    ///
    /// - Parameters:
    ///   - topic: The finding's heading.
    ///   - deed: Such as `read /etc/key`.
    ///   - advice: What to do about it if the server runs as this user.
    func refusal(_ topic: String, _ deed: String, _ advice: String) -> Finding {
        .problem(
            topic, "the user \(name) may not \(deed)",
            areServers ? advice : "run token-cache doctor as the server's user; if that is \(name), \(advice)")
    }

    /// Tries to read a file that the settings name; nil if that works or fails for another reason than a lack of rights.
    func refusesReading(_ path: String, _ topic: String) -> Finding? {
        refuses(path, O_RDONLY) ? refusal(topic, "read \(path)", advice(for: path, permissions: "r")) : nil
    }

    /// Tries to write to a file without changing it; nil if that works or fails for another reason than a lack of rights.
    func refusesWriting(_ path: String, _ topic: String) -> Finding? {
        refuses(path, O_RDWR) ? refusal(topic, "read and write \(path)", advice(for: path, permissions: "rw")) : nil
    }

    private func refuses(_ path: String, _ flags: Int32) -> Bool {
        do throws(SystemError) {
            _ = try FileDescriptor(opening: path, flags | O_NONBLOCK | O_NOCTTY)
            return false
        } catch {
            return error.isPermissionDenied
        }
    }

    // MARK: - Advice

    /// The ids of users that exist only while their service runs (systemd.exec(5), DynamicUser=).
    private static let dynamicIDs: ClosedRange<UInt32> = 61_184...65_519

    /// How to give this user access to a file: by opening a closed folder above it, or by changing its owner or permissions.
    ///
    /// - Parameters:
    ///   - path: The file, or a folder.
    ///   - permissions: What the user needs, in the letters of chmod(1).
    func advice(for path: String, permissions: String) -> String {
        let status = FileStatus(path)
        if status?.user == geteuid() { return advice(for: path, "chmod u+\(permissions) \(path)") }
        guard Self.dynamicIDs.contains(geteuid()) else {
            return advice(for: path, "chown \(status?.kind == .folder ? "-R " : "")\(name) \(path)")
        }
        return advice(
            for: path,
            path.hasPrefix(directory + "/")
                ? "chown --reference=\(directory)/ \(path)"
                : "have systemd hand it over with LoadCredential=, as the comments in token-cache.service show")
    }

    /// How to give this user write access to a folder or a file in it.
    func advice(forWriting path: String) -> String {
        let place = FileStatus(path) == nil ? Path.folder(of: path) : path
        return advice(for: path, "give it write access: chown \(name) \(place)")
    }

    /// How to create a folder for this user.
    func advice(forCreating folder: String) -> String {
        "create it for that user: install -d -m 700 -o \(name) \(folder)"
    }

    /// How to give the user access to a path: by opening the folder that is closed, or else as given.
    func advice(for path: String, _ other: String) -> String {
        guard let folder = Self.closedFolder(above: path) else { return other }
        return "let it enter \(folder), for example with chmod go+x \(folder), or use a path elsewhere"
    }

    /// The first folder above a path that this user may not enter; nil if there is none.
    private static func closedFolder(above path: String) -> String? {
        var folders: [String] = []
        var folder = Path.folder(of: path)
        while folder != "/" && folder != "." {
            folders.append(folder)
            folder = Path.folder(of: folder)
        }
        return folders.reversed().first { unsafe access($0, X_OK) != 0 && errno == EACCES }
    }
}
