import Audit
import Glibc
package import Logging
package import Server
package import Settings
import System
import TokenStore

/// Queries and controls a running server through its control socket.
package enum ServerControl {
    /// The readiness of the data folder's server, for the probes of service managers; not ready if it does not answer.
    ///
    /// Blocks the calling thread, for a few seconds at most.
    package static func readiness(_ settings: Settings) -> ServiceReadiness {
        let client = Self.client(settings)
        do {
            return try client.answer("GET", "/readyz")
        } catch {
            return ServiceReadiness(reasons: ["no answer from \(client.path): \(error)"])
        }
    }

    /// Makes the server read its settings and files again, and waits for the outcome.
    package static func reload(_ settings: Settings) throws(CommandFailure) -> ReloadOutcome {
        let client = ServerClient(in: settings.dataDirectoryPath)
        do {
            return try client.answer("POST", "/reload")
        } catch {
            guard error.isAbsence else { throw CommandFailure("\(client.path): \(error)") }
            if let holder = DataDirectory.holder(of: settings.dataDirectoryPath) {
                throw CommandFailure(
                    """
                    process \(holder) uses the data folder, but \(client.path): \(error); if it is the server, and not a command, \
                    kill -HUP \(holder) makes it read its settings, and a restart makes the socket again
                    """
                )
            }
            throw CommandFailure(
                """
                no server uses the data folder \(settings.dataDirectoryPath); start it, or name the folder of another server with \
                --data-directory or --config. If data_directory was changed since the server started, it uses the former folder \
                until it is restarted
                """
            )
        }
    }

    /// Tells the server, if one runs in the data folder, that an API key was added or removed.
    ///
    /// Throws nothing: a server that could not be told notices the change by itself.
    ///
    /// - Returns: Why the server cannot use the changed file and keeps its previous keys; nil if it can use the file, or if no
    ///   server answers.
    static func report(_ change: APIKeyChange, _ settings: Settings) -> String? {
        (try? client(settings).perform(change))?.fault
    }

    fileprivate static func client(_ settings: Settings) -> ServerClient {
        ServerClient(in: settings.dataDirectoryPath, timeoutInSeconds: ServerClient.shortTimeoutInSeconds)
    }
}

extension APIKeyChange {
    /// Changes the file of API keys, and has the change recorded in the audit log: by the server that uses the data folder, or by
    /// this process if none does.
    ///
    /// If the audit log cannot be opened, nothing is changed.
    ///
    /// - Parameter body: Changes the file.
    /// - Returns: See `ServerControl.report`.
    package func perform(_ settings: Settings, logger: Logger, _ body: () throws -> Void) throws -> String? {
        guard !settings.audit.file.isEmpty, let directory = try Self.lock(settings) else {
            try body()
            return ServerControl.report(self, settings)
        }
        // After the log is closed.
        defer { directory.unlock() }
        let audit = try OperatorTrail.open(settings, for: recordedAction, logger)
        defer { audit?.log.close() }
        do {
            try body()
        } catch {
            // Recorded because the file may have changed even so: perhaps only its folder could not be synced.
            try? audit?.record([.init(action: recordedAction, outcome: .failed, key: name)])
            throw error
        }
        try audit?.record([.init(action: recordedAction, outcome: .ok, key: name)])
        return nil
    }

    /// Nil if a server uses the folder.
    private static func lock(_ settings: Settings) throws(CommandFailure) -> DataDirectory? {
        let path = settings.dataDirectoryPath
        guard FileStatus.exists(path) else {
            throw CommandFailure(
                """
                nothing was done, because the audit log could not record it without the data folder \(path), which does not \
                exist; name the server's with --data-directory or --config, or make it as the server's user: mkdir -m 700 \(path)
                """
            )
        }
        do {
            return try DataDirectory(path: path, creates: false)
        } catch {
            guard case .inUse(_, let processID) = error else { throw CommandFailure(.directory(error)) }
            guard !isServerReachable(settings) else { return nil }
            let process = processID.map { "process \($0)" } ?? "another process"
            throw CommandFailure(
                """
                nothing was done, because the audit log could not record it: the data folder \(path) is in use by \(process), \
                which is not a running server; try again when it has ended
                """
            )
        }
    }

    /// Whether a server accepts commands; one that this user may not connect to counts.
    private static func isServerReachable(_ settings: Settings) -> Bool {
        do {
            let _: ServiceReadiness = try ServerControl.client(settings).answer("GET", "/readyz")
            return true
        } catch {
            return !error.isAbsence
        }
    }
}
