internal import Audit
internal import Logging
package import Settings
internal import System

extension Server {
    /// Fails if a start would fail over the files of keys and logs; changes nothing.
    ///
    /// - Parameter isAwaited: Whether a log's folder will be there when the service starts, and cannot be looked at before.
    package static func examineFiles(_ settings: Settings, except isAwaited: (String) -> Bool) throws(StartError) {
        _ = try AccessResources(settings)
        let path = settings.accessLogFile
        if settings.accessLog != .off && !path.isEmpty && !isAwaited(path) {
            do throws(SystemError) {
                try AccessLogFile.examine(path)
            } catch {
                throw AccessLogFile.fault(path, error)
            }
        }
        guard !settings.audit.file.isEmpty, !isAwaited(settings.audit.file), !isAwaited(settings.auditKeyPath) else {
            return
        }
        do throws(AuditError) {
            // The server itself may have it open.
            try AuditLog.examine(path: settings.audit.file, keyPath: settings.auditKeyPath, isAlone: false)
        } catch {
            throw .audit("the audit log cannot be opened: \(error)")
        }
    }
}
