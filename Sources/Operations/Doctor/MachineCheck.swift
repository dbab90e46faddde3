internal import Audit
internal import FoundationEssentials
internal import Glibc
internal import Server
internal import Settings
internal import System

/// Checks the limit of open files, core dumps and the clock.
enum MachineCheck {
    private static let topic = "Machine"

    static func findings(_ settings: Settings, _ server: RunningServer) -> [Finding] {
        [descriptors(settings, server), coreDumps(server)] + clock(now: Int64(time(nil)))
    }

    private static func descriptors(_ settings: Settings, _ server: RunningServer) -> Finding {
        // A server raises its soft limit to the hard one.
        let limit = server.facts?.descriptorLimit ?? DescriptorLimit.highest
        let whose = server.facts == nil ? "a server that is started here" : "the server"
        let text = "\(whose) can have \(limit) files open, limits.connections is \(settings.connectionLimit)"
        guard limit >= DescriptorLimit.lowest(forLoops: settings.loops) else {
            return .problem(topic, "\(text): too few to start", "raise it with ulimit -n or LimitNOFILE=")
        }
        guard !DescriptorLimit.suffices(limit, forConnections: settings.connectionLimit) else {
            return .ok(topic, text)
        }
        return .warning(topic, text, "raise it with ulimit -n or LimitNOFILE=, or lower limits.connections")
    }

    private static func coreDumps(_ server: RunningServer) -> Finding {
        guard let facts = server.facts else { return .ok(topic, "the server turns its core dumps off") }
        let limits = TextFile.contents(of: "/proc/\(facts.processID)/limits") ?? ""
        let line = limits.split(separator: "\n").first { $0.hasPrefix("Max core file size") }
        guard let words = line?.split(separator: " ") else {
            return .warning(
                topic, "this user may not see whether the server's core dumps are off", "run token-cache doctor as root"
            )
        }
        guard words.count > 5, words[4] == "0" else {
            return .problem(
                topic, "the server's core dumps are on, and would contain keys and tokens", "restart the server")
        }
        return .ok(topic, "the server's core dumps are off")
    }

    /// Checks that the year is 2026 to 2099, as certificates and retention depend on the clock.
    static func clock(now: Int64) -> [Finding] {
        let text = "the clock says \(LogTime.text(now))"
        guard (1_767_225_600..<4_102_444_800).contains(now) else {
            return [.problem(topic, text, "set it, and check that timedatectl shows it as synchronized")]
        }
        return [.ok(topic, text)]
    }
}

/// Checks the files of the access log and the audit log.
enum LogCheck {
    static func findings(_ settings: Settings, _ rights: Rights, _ server: RunningServer) -> [Finding] {
        accessLog(settings, rights) + auditLog(settings, rights, server)
    }

    private static func accessLog(_ settings: Settings, _ rights: Rights) -> [Finding] {
        let (topic, path) = ("Access log", settings.accessLogFile)
        guard settings.accessLog != .off, !path.isEmpty else { return [] }
        do throws(SystemError) {
            try AccessLogFile.examine(path)
            return [FileStatus(path)?.isPipe == true ? pipe(path, topic) : .ok(topic, "\(path) can be written")]
        } catch {
            return fault(error, topic, path, rights) ?? [.problem(topic, AccessLogFile.fault(path, error))]
        }
    }

    /// A start fails if no program reads the pipe.
    private static func pipe(_ path: String, _ topic: String) -> Finding {
        .ok(
            topic,
            "\(path) can be written as soon as a program reads this pipe, without which the server does not start")
    }

    private static func auditLog(_ settings: Settings, _ rights: Rights, _ server: RunningServer) -> [Finding] {
        let (topic, path) = ("Audit log", settings.audit.file)
        guard !path.isEmpty else { return [] }
        if let refusal = rights.refusesReading(settings.auditKeyPath, topic) { return [refusal] }
        do throws(AuditError) {
            try AuditLog.examine(path: path, keyPath: settings.auditKeyPath, isAlone: server.isAbsent)
            return [.ok(topic, "\(path) can be written")]
        } catch {
            guard case .file(let path, let cause) = error else { return [.problem(topic, error)] }
            return fault(cause, topic, path, rights) ?? [.problem(topic, error)]
        }
    }

    /// A lack of rights to write a file; nil for any other error.
    private static func fault(
        _ error: SystemError, _ topic: String, _ path: String, _ rights: Rights
    ) -> [Finding]? {
        guard error.isPermissionDenied else { return nil }
        return [rights.refusal(topic, "write \(path)", rights.advice(forWriting: path))]
    }
}
