internal import Audit
internal import Server
internal import Settings
internal import System

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
