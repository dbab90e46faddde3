internal import Audit
internal import Glibc
internal import Logging
internal import Server
internal import Settings
internal import System

/// The audit log of a server that does not run, opened by a command that does what the server would record.
///
/// Any thread; calls wait for the disk.
struct CommandAuditLog: Sendable {
    /// Records what the command's user does.
    let trail: OperatorTrail
    private let log: AuditLog

    /// Opens the log, so that a command that could not be recorded has changed nothing yet.
    ///
    /// The caller has locked the data folder: a server that runs there has the log open itself.
    ///
    /// - Parameters:
    ///   - settings: The server's.
    ///   - action: What the command is about to do; nil if that is never recorded.
    ///   - logger: Receives what an operator should know of the log.
    /// - Returns: Nil if the settings name no audit log, or leave this action out.
    static func open(
        _ settings: Settings, for action: AuditEvent.Action?, _ logger: Logger
    ) throws(StartError) -> CommandAuditLog? {
        guard let action, settings.audit.events.includes(action, .ok) else { return nil }
        do throws(StartError) {
            guard let log = try Server.openAuditLog(settings, logger) else {
                warnOfMissingSetting(settings, logger)
                return nil
            }
            return CommandAuditLog(
                trail: OperatorTrail(log, by: .operator(uid: getuid())) { settings.audit }, log: log)
        } catch {
            throw .audit("nothing was done: \(error)")
        }
    }

    private static func warnOfMissingSetting(_ settings: Settings, _ logger: Logger) {
        guard FileStatus.exists(settings.auditKeyPath) else { return }
        logger.warning(
            """
            this is recorded nowhere: audit.file is not set, although \(settings.auditKeyPath) shows that a server here has an \
            audit log; give commands the server's settings with --config
            """
        )
    }

    /// To be called now and then while a command works, as a server does each second.
    func keepUp() {
        log.keepUp()
    }

    func close() {
        log.close()
    }
}
