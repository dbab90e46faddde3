package import Audit
package import Logging
package import Settings

extension Server {
    private static let auditInterval = Duration.seconds(1)

    /// Opens the audit log, which records the start; nil if the settings name none.
    package static func openAuditLog(_ settings: Settings, _ logger: Logger) throws(StartError) -> AuditLog? {
        guard !settings.audit.file.isEmpty else { return nil }
        do throws(AuditError) {
            return try AuditLog(path: settings.audit.file, keyPath: settings.auditKeyPath) { notice in
                logger.log(level: notice.isAlarm ? .error : .notice, "\(notice)")
            }
        } catch {
            throw .audit("the audit log cannot be opened: \(error)")
        }
    }

    /// Replaces the audit log's key when its time is over, and tries again to write after a failure.
    func keepUpAuditLog() async {
        guard let audit else { return }
        while (try? await Task.sleep(for: Self.auditInterval)) != nil { audit.keepUp() }
    }

    /// Begins to record an act that concerns the server as a whole.
    ///
    /// Reload and stop are carried out even if they cannot be recorded, because they may repair the log.
    ///
    /// - Returns: A task that ends when the act is recorded. It runs apart from the caller's loop, which must not wait for a
    ///   disk.
    func record(
        _ action: AuditEvent.Action, _ outcome: AuditEvent.Outcome, by actor: AuditEvent.Actor
    ) -> Task<Void, Never> {
        let event = AuditEvent(action, outcome, by: actor)
        return Task { [audit] in _ = try? audit?.append([event]) }
    }

    /// Why requests are refused for lack of the audit log; nil if they are not.
    var auditFault: String? {
        guard let audit, settingsInForce.audit.isRequired, audit.figures.isFailing else { return nil }
        return "the audit log cannot be written, and audit.required is on"
    }
}
