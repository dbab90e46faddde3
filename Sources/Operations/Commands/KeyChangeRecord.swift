internal import Audit
internal import Glibc
package import Logging
internal import Server
package import Settings
internal import System
internal import TokenStore

/// Records a command's change of the API keys in the audit log, while no server runs that would record it.
///
/// Holds the data folder and the log from before the change until it is closed.
package struct KeyChangeRecord: Sendable {
    private let directory: DataDirectory
    private let audit: CommandAuditLog
    private let change: KeyChange

    /// Opens the audit log, so that a change that could not be recorded is not made.
    ///
    /// - Returns: Nil if the settings name no audit log, or if the server that uses the data folder records the change.
    package static func open(
        _ change: KeyChange, _ settings: Settings, logger: Logger
    ) throws(StoreAccess.Failure) -> KeyChangeRecord? {
        guard !settings.audit.file.isEmpty else { return nil }
        guard let directory = try lock(settings) else { return nil }
        do throws(StartError) {
            if let audit = try CommandAuditLog.open(settings, for: change.action, logger) {
                return KeyChangeRecord(directory: directory, audit: audit, change: change)
            }
        } catch {
            directory.unlock()
            throw StoreAccess.Failure("\(error)")
        }
        directory.unlock()
        return nil
    }

    /// Nil if a server uses the folder.
    private static func lock(_ settings: Settings) throws(StoreAccess.Failure) -> DataDirectory? {
        let path = settings.dataDirectoryPath
        guard FileStatus.exists(path) else {
            throw StoreAccess.Failure(
                """
                nothing was done, because the audit log could not record it without the data folder \(path), which does not \
                exist; name the server's with --data-directory or --config, or start the server once, which makes it
                """
            )
        }
        do throws(DataDirectoryError) {
            return try DataDirectory(path: path, creates: false)
        } catch {
            guard case .inUse(_, let processID) = error else { throw StoreAccess.Failure(.directory(error)) }
            guard !isServerReachable(settings) else { return nil }
            let process = processID.map { "process \($0)" } ?? "another process"
            throw StoreAccess.Failure(
                """
                nothing was done, because the audit log could not record it: the data folder \(path) is in use by \(process), \
                which is not a running server; try again when it has ended
                """
            )
        }
    }

    /// Whether a server accepts commands; if this user may not connect, there is one.
    private static func isServerReachable(_ settings: Settings) -> Bool {
        do throws(BlockingSocket.Failure) {
            _ = try BlockingSocket(
                unixPath: ControlSocketAddress.path(in: settings.dataDirectoryPath),
                timeoutInSeconds: HealthProbe.timeoutInSeconds)
            return true
        } catch {
            return error.code != ENOENT && error.code != ECONNREFUSED
        }
    }

    /// Records that the file was changed.
    package func finish() throws(StoreAccess.Failure) {
        do throws(StoreError) {
            try audit.trail.record([.init(change.action, .ok, key: change.name)])
        } catch {
            throw StoreAccess.Failure("\(error)")
        }
    }

    /// Records that the change has failed; throws nothing, because the caller reports the error that made it fail.
    package func fail() {
        try? audit.trail.record([.init(change.action, .failed, key: change.name)])
    }

    package func close() {
        audit.close()
        directory.unlock()
    }
}
