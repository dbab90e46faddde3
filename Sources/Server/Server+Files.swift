package import Audit
package import Logging
package import Settings
import System

/// The files of keys and logs, before the server uses them.
extension Server {
    /// Fails if a start would fail because of the files of keys and logs; changes nothing.
    ///
    /// - Parameter isAwaited: Whether a file or its folder is made only when the service starts, so that it cannot be checked yet.
    /// - Returns: How the keys for JWTs are used; nil without any.
    @discardableResult
    package static func examineFiles(
        _ settings: Settings, except isAwaited: (String) -> Bool
    ) throws(StartError) -> String? {
        let summary = try AccessResources(settings).keySummary
        let path = settings.accessLog.file
        if settings.accessLog.isOn && !path.isEmpty && !isAwaited(path) {
            do {
                try AccessLogFile.examine(path)
            } catch {
                throw .accessLog(path, error)
            }
        }
        guard !settings.audit.file.isEmpty, !isAwaited(settings.audit.file), !isAwaited(settings.auditKeyPath) else {
            return summary
        }
        do {
            // The server itself may have it open.
            try AuditLog.examine(path: settings.audit.file, keyPath: settings.auditKeyPath)
        } catch {
            throw StartError("the audit log cannot be opened: \(error)")
        }
        return summary
    }

    /// Opens the audit log, which records the start; nil if the settings name none.
    package static func openAuditLog(_ settings: Settings, _ logger: Logger) throws(StartError) -> AuditLog? {
        guard !settings.audit.file.isEmpty else { return nil }
        do {
            return try AuditLog(path: settings.audit.file, keyPath: settings.auditKeyPath) { notice in
                logger.log(level: notice.isAlarm ? .error : .notice, "\(notice)")
            }
        } catch {
            throw StartError("the audit log cannot be opened: \(error)")
        }
    }
}
