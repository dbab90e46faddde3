internal import EventLoop
internal import HTTP
internal import Logging
internal import Settings
internal import Synchronization
internal import System
internal import TokenService
internal import TokenStore

/// Reads the settings anew while the server runs, and has those take effect that can.
///
/// All of them or none: whatever is wrong with one of them, or with a file that they name, nothing changes. Connections that
/// are open take the new values at their next request; only their certificates stay.
/// Any thread.
final class SettingsReloader: Sendable {
    /// What has settings of its own besides the loops.
    struct Parts: Sendable {
        let store: any TokenStore
        let log: LogOutput
        let accessLog: LineWriter
        let connectionCount: ConnectionCount
        let bufferBudget: BufferBudget
        /// Nil without TLS listeners.
        let tls: TLSContext?
    }

    private let loader: SettingsLoader
    private let parts: Parts
    private let workers: [Worker]
    private let logger: Logger
    private let running: Mutex<Settings>
    /// The last that was asked for: one at a time, in their order.
    private let last = Mutex<Task<ReloadOutcome, Never>?>(nil)

    /// - Parameter settings: In force so far.
    init(_ settings: Settings, from loader: SettingsLoader, _ parts: Parts, _ workers: [Worker]) {
        running = Mutex(settings)
        self.loader = loader
        self.parts = parts
        self.workers = workers
        logger = parts.log.logger
    }

    /// What is in force.
    var settings: Settings { running.withLock(\.self) }

    /// Which certificates clients refuse, or soon will.
    var certificateWarnings: [String] { (parts.tls?.certificates ?? []).compactMap { $0.warning() } }

    /// Reads everything again: settings, certificates, and the access log's file, which somebody may have renamed.
    func reload(_ reason: String) async -> ReloadOutcome {
        await last.withLock { last in
            // A task of its own, as reading files is not for a loop's thread.
            let task = Task { [former = last] in
                _ = await former?.value
                return await reloadNow(reason)
            }
            last = task
            return task
        }.value
    }

    private func reloadNow(_ reason: String) async -> ReloadOutcome {
        do {
            let before = settings
            let change = SettingsChange(from: before, to: try loader.load(), takesTLS: parts.tls != nil)
            let settings = change.settings
            // Whatever can fail comes before the first change.
            let certificates = try parts.tls?.read(TLSFiles(settings))
            let destination = try Self.destination(settings)
            try await parts.store.change(settings.retention)
            if let certificates { parts.tls?.use(certificates) }
            if !(before.accessLogFile.isEmpty && destination.path.isEmpty) { parts.accessLog.change(to: destination) }
            apply(settings)
            // With the lower of both levels, so that the line is there for who has just raised it.
            parts.log.set(level: min(before.logLevel, settings.logLevel), format: settings.logFormat)
            let outcome = tell(reason, change)
            parts.log.set(level: settings.logLevel, format: settings.logFormat)
            return outcome
        } catch let error as TLSConfigurationError {
            return refuse(reason, "no setting changes, the certificates in use stay: \(error)")
        } catch {
            return refuse(reason, "no setting changes: \(error)")
        }
    }

    /// Reads only the certificates again.
    func reloadCertificates(_ reason: String) {
        guard let tls = parts.tls else { return }
        do throws(TLSConfigurationError) {
            try tls.reload()
            logger.notice("\(reason): certificates reloaded, the first expires on \(Self.date(tls.earliestExpiry))")
            for warning in certificateWarnings { logger.warning("\(reason): \(warning)") }
        } catch {
            logger.error("\(reason), and the certificates in use stay: \(error)")
        }
    }

    /// Where the access log goes; its file is opened only when there is one.
    static func destination(_ settings: Settings) throws(StartError) -> LineWriter.Destination {
        let path = settings.accessLog == .off ? "" : settings.accessLogFile
        do throws(SystemError) {
            return try LineWriter.Destination(path)
        } catch {
            throw .accessLog(path: path, reason: error.reason)
        }
    }

    private func apply(_ settings: Settings) {
        running.withLock { $0 = settings }
        parts.connectionCount.setLimit(settings.connectionLimit)
        parts.bufferBudget.setLimit(settings.bufferLimit)
        let accessLog = AccessLog(settings.accessLogFormat, to: parts.accessLog)
        for worker in workers { worker.loop.execute { worker.apply(settings, accessLog: accessLog) } }
    }

    private func refuse(_ reason: String, _ outcome: String) -> ReloadOutcome {
        logger.error("\(reason), and \(outcome)")
        return ReloadOutcome(isReloaded: false, outcome: outcome)
    }

    private func tell(_ reason: String, _ change: SettingsChange) -> ReloadOutcome {
        let made = change.made.isEmpty ? "no setting has changed" : change.made.joined(separator: ", ")
        let expiry = parts.tls.map { "; certificates reloaded, the first expires on \(Self.date($0.earliestExpiry))" }
        var outcome = made + (expiry ?? "")
        logger.notice("\(reason): \(outcome)")
        if !change.postponed.isEmpty {
            let postponed = change.postponed.joined(separator: ", ")
            logger.warning("\(reason): \(postponed)")
            outcome += "; " + postponed
        }
        for warning in certificateWarnings {
            logger.warning("\(reason): \(warning)")
            outcome += "; " + warning
        }
        if change.changes(\.connectionLimit),
            let warning = DescriptorLimit.warning(forConnections: change.settings.connectionLimit)
        {
            logger.warning("\(reason): \(warning)")
            outcome += "; " + warning
        }
        if change.settings.https.mode == .off && change.changes(\.https.mode) {
            logger.warning("https.mode is off: tokens are accepted and given over plain HTTP")
        }
        return ReloadOutcome(isReloaded: true, outcome: outcome)
    }

    private static func date(_ unixTime: Int64) -> Substring {
        LogTime.text(unixTime).prefix { $0 != "T" }
    }
}
