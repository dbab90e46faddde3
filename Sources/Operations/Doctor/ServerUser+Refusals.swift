internal import Glibc
internal import System

/// Findings that the doctor makes by trying, with the rights of this process.
extension ServerUser {
    /// Reports what this user may not do.
    ///
    /// - Parameters:
    ///   - topic: The finding's heading.
    ///   - deed: Such as `read /etc/key`.
    ///   - advice: What to do about it if the server runs as this user.
    func refusal(_ topic: String, _ deed: String, _ advice: String) -> Finding {
        guard isPresent else {
            return .warning(
                topic, "this user may not \(deed)", "run token-cache doctor as root or as the server's user")
        }
        let subject = source == .present ? "this user" : "the server's user \(account.name)"
        return .problem(topic, "\(subject) may not \(deed)", advice)
    }

    /// Tries to read a file that the settings name; nil if that works or fails for another reason than a lack of rights.
    func refusesReading(_ path: String, _ topic: String) -> Finding? {
        do throws(SystemError) {
            _ = try FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
            return nil
        } catch {
            guard error.isPermissionDenied else { return nil }
            return refusal(topic, "read \(path)", advice(for: path, permissions: "r"))
        }
    }

    /// Tries to read the settings file; nil if that works or fails for another reason than a lack of rights.
    ///
    /// Everybody may read the file, unlike others that settings name.
    package func settingsRefusal(_ path: String) -> Finding? {
        do throws(SystemError) {
            _ = try FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
            return nil
        } catch {
            guard error.isPermissionDenied else { return nil }
            let isOwn = FileStatus(path)?.user == account.id
            let others = "chmod o+r \(path), or give it to a group of \(account.name) with chgrp and chmod g+r"
            return refusal("Settings", "read \(path)", advice(for: path, isOwn ? "chmod u+r \(path)" : others))
        }
    }

    /// Tries to write to a file without changing it; nil if that works or fails for another reason than a lack of rights.
    func refusesWriting(_ path: String, _ topic: String) -> Finding? {
        do throws(SystemError) {
            _ = try FileDescriptor(opening: path, O_RDWR | O_NONBLOCK | O_NOCTTY)
            return nil
        } catch {
            guard error.isPermissionDenied else { return nil }
            return refusal(topic, "read and write \(path)", advice(for: path, permissions: "rw"))
        }
    }

    /// How to give the user access to a file: by opening a closed folder above it, or by changing its owner or permissions.
    ///
    /// - Parameters:
    ///   - path: The file, or a folder.
    ///   - permissions: What the user needs, in the letters of chmod(1).
    func advice(for path: String, permissions: String) -> String {
        let status = FileStatus(path)
        let other: String
        if status?.user == account.id {
            other = "chmod u+\(permissions) \(path)"
        } else if let service, service.isDynamic {
            // While the service is stopped there is no such user, and a different service may get its number later.
            if let folder = service.folder(of: path) {
                other = "chown --reference=\(folder)/ \(path)"
            } else {
                other = """
                    have systemd hand it over with LoadCredential= in \(service.unit), as its comments show, because the user \
                    \(account.name) exists only while the service runs
                    """
            }
        } else {
            other = "chown \(status?.kind == .folder ? "-R " : "")\(account.name) \(path)"
        }
        return advice(for: path, other)
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
