internal import Glibc
internal import Server
internal import System

/// Whether a Unix socket can be made where the settings want it.
enum UnixSocketCheck {
    private static let topic = ListenerCheck.topic
    private static let askOtherwise = "run token-cache doctor as root or as the server's user"

    static func findings(
        _ path: String, owner: String?, _ key: String, _ server: RunningServer, _ own: [String]
    ) -> [Finding] {
        if own.contains(where: { $0.hasSuffix("unix:\(path)") }) {
            return [.ok(topic, "\(key): the running server has unix:\(path)")]
        }
        if let finding = taken(path, key, server) ?? closed(path, key) { return [finding] }
        let state = FileStatus(path) == nil ? "can be had" : "is left over, and will be replaced"
        return [owner.flatMap { refused($0, path, key) } ?? .ok(topic, "\(key): unix:\(path) \(state)")]
    }

    /// What is there and stays.
    private static func taken(_ path: String, _ key: String, _ server: RunningServer) -> Finding? {
        guard let found = FileStatus(path) else { return nil }
        guard found.isSocket else { return problem(key, UnixSocketFault(path, .notASocket)) }
        do throws(BlockingSocket.Failure) {
            _ = try BlockingSocket(unixPath: path, timeoutInSeconds: HealthProbe.timeoutInSeconds)
        } catch {
            // Somebody may well be listening.
            guard error.code == EACCES || error.code == EPERM else { return nil }
            return .warning(topic, "\(key): unix:\(path) is not for this user", askOtherwise)
        }
        // Who it is cannot be seen from here.
        if case .hidden = server {
            return .warning(
                topic, "\(key): unix:\(path) is in use, by the running server or by another program", askOtherwise)
        }
        return problem(key, UnixSocketFault(path, .inUse))
    }

    /// A folder where no socket can be made.
    private static func closed(_ path: String, _ key: String) -> Finding? {
        let folder = Path.folder(of: path)
        guard unsafe access(folder, W_OK | X_OK) != 0 else { return nil }
        switch errno {
        case ENOENT: return problem(key, UnixSocketFault(path, .noFolder))
        case EROFS: return problem(key, UnixSocketFault(path, .readOnly))
        case EACCES, EPERM:
            return .warning(topic, "\(key): unix:\(path) is not for this user to make in \(folder)", askOtherwise)
        case let code:
            let reason = SystemError.reason(code)
            return problem(key, UnixSocketFault(path, .other(reason)))
        }
    }

    /// Somebody whom the socket cannot be given to.
    private static func refused(_ name: String, _ path: String, _ key: String) -> Finding? {
        let owner: (user: UInt32, group: UInt32)
        do throws(StartError) {
            owner = try ClientListener.owner(name, path)
        } catch {
            return .problem(topic, "\(key): \(error)", "make that user or group, or name another one")
        }
        let isOwn = owner.user == geteuid() && (owner.group == getegid() || ownGroups.contains(owner.group))
        guard geteuid() != 0 && !isOwn else { return nil }
        return .warning(
            topic, "\(key): this user cannot give unix:\(path) to \(name), as only root can",
            "\(askOtherwise); if that is not root, leave ?owner= out"
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
