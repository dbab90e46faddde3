internal import Glibc
internal import Server
internal import System

/// Checks that the server can create a Unix socket at the path in the settings, or already listens there.
enum UnixSocketCheck {
    private static let topic = ListenerCheck.topic
    private static let otherUser = "run token-cache doctor as root or as the server's user"

    static func findings(
        _ path: String, owner: String?, _ key: String, _ server: RunningServer, _ own: [String]
    ) -> [Finding] {
        if own.contains(where: { $0.hasSuffix("unix:\(path)") }) {
            return [.ok(topic, "\(key): the running server listens on unix:\(path)")]
        }
        if let finding = existingFile(path, key, server) ?? folder(path, key) { return [finding] }
        let state = FileStatus(path) == nil ? "can be created" : "is left over from an ended program, and is replaced"
        return [owner.flatMap { ownership($0, path, key) } ?? .ok(topic, "\(key): unix:\(path) \(state)")]
    }

    /// Reports a file at the path that the server cannot replace; nil if there is none.
    private static func existingFile(_ path: String, _ key: String, _ server: RunningServer) -> Finding? {
        guard let found = FileStatus(path) else { return nil }
        guard found.isSocket else { return problem(key, UnixSocketFault(path, .notASocket)) }
        do throws(BlockingSocket.Failure) {
            _ = try BlockingSocket(unixPath: path, timeoutInSeconds: HealthProbe.timeoutInSeconds)
        } catch {
            // Without permission to connect, a program may be listening all the same.
            guard error.code == EACCES || error.code == EPERM else { return nil }
            return .warning(topic, "\(key): this user may not connect to unix:\(path)", otherUser)
        }
        // This user cannot see whether the server itself uses the socket.
        if case .hidden = server {
            return .warning(
                topic, "\(key): unix:\(path) is in use, by the running server or by another program", otherUser)
        }
        return problem(key, UnixSocketFault(path, .inUse))
    }

    /// Reports a folder in which the socket cannot be created; nil if it can.
    private static func folder(_ path: String, _ key: String) -> Finding? {
        let folder = Path.folder(of: path)
        guard unsafe access(folder, W_OK | X_OK) != 0 else { return nil }
        switch errno {
        case ENOENT: return problem(key, UnixSocketFault(path, .noFolder))
        case EROFS: return problem(key, UnixSocketFault(path, .readOnly))
        case EACCES, EPERM:
            return .warning(topic, "\(key): this user may not create unix:\(path) in \(folder)", otherUser)
        case let code:
            let reason = SystemError.reason(code)
            return problem(key, UnixSocketFault(path, .other(reason)))
        }
    }

    /// Reports an owner that the socket's file cannot be given to; nil if it can.
    private static func ownership(_ name: String, _ path: String, _ key: String) -> Finding? {
        let owner: (user: UInt32, group: UInt32)
        do throws(StartError) {
            owner = try ClientListener.owner(name, path)
        } catch {
            return .problem(topic, "\(key): \(error)", "create that user or group, or name another one")
        }
        let isOwn = owner.user == geteuid() && (owner.group == getegid() || ownGroups.contains(owner.group))
        guard geteuid() != 0 && !isOwn else { return nil }
        return .warning(
            topic, "\(key): this user cannot give unix:\(path) to \(name), as only root can",
            "\(otherUser); if that is not root, remove ?owner="
        )
    }

    private static var ownGroups: [gid_t] {
        var groups = [gid_t](repeating: 0, count: 1 << 16)
        let count = unsafe getgroups(Int32(groups.count), &groups)
        return Array(groups.prefix(max(0, Int(count))))
    }

    private static func problem(_ key: String, _ fault: UnixSocketFault) -> Finding {
        let finding = Finding.problem(topic, fault)
        return .problem(topic, "\(key): \(finding.text)", finding.advice)
    }
}
