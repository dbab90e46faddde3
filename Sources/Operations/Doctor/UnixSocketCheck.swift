internal import Glibc
internal import Server
internal import System

/// Checks that the server can create a Unix socket at the path in the settings, or already listens there.
struct UnixSocketCheck {
    private let rights: Rights
    private let server: RunningServer
    private static let topic = ListenerCheck.topic

    init(_ rights: Rights, _ server: RunningServer) {
        self.rights = rights
        self.server = server
    }

    func findings(_ path: String, owner: String?, _ key: String, _ own: [String]) -> [Finding] {
        if own.contains(where: { $0.hasSuffix("unix:\(path)") }) {
            return [.ok(Self.topic, "\(key): the running server listens on unix:\(path)")]
        }
        if let finding = existingFile(path, key) ?? folder(path, key) { return [finding] }
        let state = FileStatus(path) == nil ? "can be created" : "is left over from an ended program, and is replaced"
        return [owner.flatMap { ownership($0, path, key) } ?? .ok(Self.topic, "\(key): unix:\(path) \(state)")]
    }

    /// Reports a file at the path that the server cannot replace; nil if there is none.
    private func existingFile(_ path: String, _ key: String) -> Finding? {
        guard let found = FileStatus(path) else { return nil }
        guard found.isSocket else { return problem(key, UnixSocketFault(path, .notASocket)) }
        do throws(BlockingSocket.Failure) {
            _ = try BlockingSocket(unixPath: path, timeoutInSeconds: HealthProbe.timeoutInSeconds)
        } catch {
            // Without permission to connect, a program may be listening all the same.
            guard error.code == EACCES || error.code == EPERM else { return nil }
            return rights.refusal(
                Self.topic, "connect to unix:\(path) of \(key), which exists already",
                "if no program listens on it (ss -lxp shows it), remove the file; otherwise name another path")
        }
        // This user cannot see whether the server itself uses the socket.
        if case .hidden = server {
            return .warning(
                Self.topic, "\(key): unix:\(path) is in use, by the running server or by another program",
                "run token-cache doctor as the server's user")
        }
        return problem(key, UnixSocketFault(path, .inUse))
    }

    /// Reports a folder in which the socket cannot be created; nil if it can.
    private func folder(_ path: String, _ key: String) -> Finding? {
        let folder = Path.folder(of: path)
        guard unsafe access(folder, W_OK | X_OK) != 0 else { return nil }
        switch errno {
        case ENOENT: return problem(key, UnixSocketFault(path, .noFolder))
        case EROFS: return problem(key, UnixSocketFault(path, .readOnly))
        case EACCES, EPERM:
            return rights.refusal(
                Self.topic, "create unix:\(path) in \(folder), as \(key) says",
                rights.advice(for: path, "give it write access to \(folder), or name a path in another folder"))
        case let code:
            let reason = SystemError.reason(code)
            return problem(key, UnixSocketFault(path, .other(reason)))
        }
    }

    /// Reports an owner that the socket's file cannot be given to; nil if it can.
    private func ownership(_ name: String, _ path: String, _ key: String) -> Finding? {
        let owner: (user: UInt32, group: UInt32)
        do throws(StartError) {
            owner = try ClientListener.owner(name, path)
        } catch {
            return .problem(Self.topic, "\(key): \(error)", "create that user or group, or name another one")
        }
        let isOwn = owner.user == geteuid() && (owner.group == getegid() || Self.ownGroups.contains(owner.group))
        guard geteuid() != 0 && !isOwn else { return nil }
        return rights.refusal(
            Self.topic, "give unix:\(path) to \(name), as \(key) says and as only root can",
            "remove ?owner=, or use the socket unit with SocketUser= and SocketGroup="
        )
    }

    private static var ownGroups: [gid_t] {
        var groups = [gid_t](repeating: 0, count: 1 << 16)
        let count = unsafe getgroups(Int32(groups.count), &groups)
        return Array(groups.prefix(max(0, Int(count))))
    }

    private func problem(_ key: String, _ fault: UnixSocketFault) -> Finding {
        let finding = Finding.problem(Self.topic, fault)
        return .problem(Self.topic, "\(key): \(finding.text)", finding.advice)
    }
}
