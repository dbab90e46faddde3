package import Audit
import Dispatch
import EventLoop
import HTTP
import Logging
package import Settings
import Synchronization
import System
import TokenService
import TokenStore

/// Reads the settings again while the server runs, and applies those that can change without a restart.
///
/// A fault in the settings or certificates leaves everything as it was. A fault in the audit log's new file or in a key file is
/// reported, and the server goes on with the former file or keys. Open connections use the new settings from their next request
/// on, but keep the certificates of their handshake.
extension Server {
    private static let fileCheckInterval = Duration.seconds(2)
    private static let ticketKeyLifetime = Duration.seconds(86_400)

    /// The settings in force, as of the last reload.
    package var settingsInForce: Settings { inForce.withLock(\.self) }

    package var lastReload: LastReload {
        var last = reloadRecord.withLock(\.self)
        let keyRing = keyRingFault.withLock(\.self).map { "\($0)" }
        last.fileFaults =
            [keyRing, last.auditFault, tls?.fault.map { "the certificates in use stay: \($0)" }].compactMap(\.self)
            + access.faults
        return last
    }

    /// Where the settings in force come from.
    package var settingsSources: SettingsSources { sources.withLock(\.self) }

    /// Warnings about certificates that clients refuse now or within 14 days, and about authorities for clients' certificates.
    package var certificateWarnings: [String] {
        guard let tls else { return [] }
        return (tls.certificates.map { $0.warning() } + [tls.clientAuthorities?.warning()]).compactMap(\.self)
    }

    /// Reads settings and files again, and applies the settings that can change while the server runs.
    ///
    /// - Parameters:
    ///   - reason: What caused the reload, such as `SIGHUP received`; begins the line in the log.
    ///   - actor: Who it was, for the audit log.
    package func reload(_ reason: String, by actor: AuditEvent.Actor) async -> ReloadOutcome {
        notifier.send(.reloading(since: .now))
        let outcome = await reloadSettings(reason)
        // `stopping` has to stay the last message that the service manager receives.
        if !isStopping { notifier.send(.ready) }
        let event = AuditEvent(.reload, outcome.isReloaded ? .ok : .failed, by: actor)
        // A reload is carried out even if it cannot be recorded, because it may repair the log.
        if let audit {
            await withCheckedContinuation { continuation in
                audit.submit([event], isRetried: true) { _ in continuation.resume() }
            }
        }
        return outcome
    }

    /// Takes over the file of API keys at once, as a command has changed it.
    ///
    /// - Returns: Why the server cannot use the file; nil if it can.
    package func loadAPIKeys() async -> String? {
        // The file is read even if it was read since the change, so that the command learns of a fault too.
        return await access.reloadChangedFiles(logger, [.apiKeys], rereads: true).first
    }

    /// Reads the files of certificates and keys again when they change, and makes new keys for session tickets once a day.
    ///
    /// Each kind has a task of its own: where the file system of one does not answer, the others are still read.
    func reloadChangedFiles() async {
        await withDiscardingTaskGroup { group in
            group.addTask { [self] in
                var lastReload = ContinuousClock.now
                while tls != nil, (try? await Task.sleep(for: Self.fileCheckInterval)) != nil {
                    let isDue = ContinuousClock.now - lastReload > Self.ticketKeyLifetime
                    if await reloadCertificates(isDue ? "a day has passed" : nil) { lastReload = .now }
                }
            }
            group.addTask { [self] in
                await Self.repeatedly(after: Self.fileCheckInterval) {
                    await keyRingQueue.run { [self] in checkKeyRing() }
                }
            }
            for file in AccessResources.KeyFile.allCases {
                group.addTask { [self] in
                    await Self.repeatedly(after: Self.fileCheckInterval) {
                        await access.reloadChangedFiles(logger, [file])
                    }
                }
            }
        }
    }

    /// Reports that the key ring's file was lost or replaced, while the keys are still in memory: what is stored from then on could
    /// not be read after a restart.
    private func checkKeyRing() {
        let fault = store.administrator.keyRing?.fileFault
        let known = keyRingFault.withLock { known in
            defer { known = fault }
            return known
        }
        guard fault != known else { return }
        guard let fault else { return logger.notice("the key ring's file can be used again") }
        logger.error(
            "the server still has the keys in memory, but after a restart nobody could read what it stores: \(fault)")
    }

    /// Reads settings and certificates again, and reopens the logs' files, which may have been renamed.
    func reloadSettings(_ reason: String) async -> ReloadOutcome {
        await lastReloadTask.withLock { last in
            // In a separate task, because the caller's loop must not wait for files.
            let task = Task { [self, previous = last] in
                await previous?.value
                let outcome = await reloadNow(reason)
                reloadRecord.withLock { $0.note(reason, outcome.outcome, isRefused: !outcome.isReloaded) }
                return outcome
            }
            last = Task { _ = await task.value }
            return task
        }.value
    }

    private func reloadNow(_ reason: String) async -> ReloadOutcome {
        do {
            let before = settingsInForce
            // First, as the files may have been renamed, whatever is wrong with the settings.
            if before.accessLog.isOn, let same = try? Self.destination(before) { accessLog.change(to: same) }
            let auditFault = await reopenAuditLog(reason)
            // Logged now, because what follows may throw.
            if let auditFault { logger.error("\(reason): \(auditFault)") }
            // Then everything else that can fail.
            let reading = try await reloadQueue.run { Result { try self.read(since: before) } }.get()
            let (loaded, change) = (reading.loaded, reading.change)
            let settings = change.settings
            let destination = try Self.destination(settings)
            store.change(settings.storeRetention)
            if let certificates = reading.certificates {
                // If they were read again meanwhile, these are older: the next check notices that and reads them again.
                await reloadQueue.run { [self] in tls?.use(certificates) }
            }
            var faults = await access.reloadChangedFiles(logger, rereads: true)
            if let auditFault { faults.append(auditFault) }
            // If the log is switched off, lines that still wait go to the former destination.
            if settings.accessLog.isOn { accessLog.change(to: destination) }
            apply(settings)
            sources.withLock { $0.update(from: loaded, inForce: settings) }
            // Logged at the lower of both levels, so that raising the level does not hide the outcome.
            log.set(level: min(before.logLevel, settings.logLevel), format: settings.logFormat)
            reloadRecord.withLock { $0.noteSuccess(at: LoopContext.unixTime) }
            let outcome = report(reason, change, faults)
            log.set(level: settings.logLevel, format: settings.logFormat)
            return outcome
        } catch let error as KeyFileError {
            return refuse(reason, "no setting changes, the certificates in use stay: \(error)")
        } catch {
            return refuse(reason, "no setting changes: \(error)")
        }
    }

    /// How long a reload waits for the audit log's disk: as long as a request does.
    private static let auditPatience = Duration.seconds(5)

    /// Continues the audit log in a new file if its file was renamed.
    ///
    /// A disk that is full or does not respond must not keep settings from taking effect, above all audit.required: off.
    ///
    /// - Returns: Why the log could not be continued in a new file; nil if it was, or had not been renamed.
    private func reopenAuditLog(_ reason: String) async -> String? {
        guard let audit else { return nil }
        return await withCheckedContinuation { continuation in
            let waiting = Mutex(Optional(continuation))
            auditQueue.async { [self] in
                var fault: String?
                do { try audit.reopen() } catch { fault = "the audit log is not continued in a new file: \(error)" }
                reloadRecord.withLock { $0.auditFault = fault }
                if let waiter = waiting.withLock({ $0.take() }) {
                    waiter.resume(returning: fault)
                } else if let fault {
                    logger.error("\(reason): \(fault)")
                }
            }
            let patience = audit.isStalled ? .zero : Self.auditPatience
            Signal.perform(after: patience) {
                let fault = "the disk of the audit log does not respond; a renamed log is continued once it does"
                waiting.withLock { $0.take() }?.resume(returning: fault)
            }
        }
    }

    private struct Reading: Sendable {
        let loaded: SettingsLoader.Loaded
        let change: SettingsChange
        let certificates: WatchedCertificates.Reading?
    }

    private func read(since before: Settings) throws -> Reading {
        let loaded = try loader.loadWithOrigins()
        let change = SettingsChange(from: before, to: loaded.settings, takesTLS: tls != nil)
        // The access mode, which stays until a restart, may need settings that are missing now.
        try change.settings.checkAccess()
        return Reading(
            loaded: loaded, change: change, certificates: try tls?.read(TLSFiles(change.settings)))
    }

    /// Reads only the certificates again, if their files have changed or could not be used, or a reason is given.
    ///
    /// - Returns: Whether they were read.
    func reloadCertificates(_ reason: String?) async -> Bool {
        // Does not wait for a reload to end, which may wait for the file system of other files.
        await reloadQueue.run { [self] in
            guard reason != nil || tls?.haveChanged == true else { return false }
            readCertificates(reason ?? "certificate files have changed")
            return true
        }
    }

    private func readCertificates(_ reason: String) {
        guard let tls else { return }
        let known = tls.fault
        do {
            try tls.reload()
            let outcome = Self.text(tls)
            reloadRecord.withLock { record in
                if record.settingsFault == nil { record.noteSuccess(at: LoopContext.unixTime) }
                record.note(reason, outcome, isRefused: false)
            }
            logger.notice("\(reason): \(outcome)")
            for warning in certificateWarnings { logger.warning("\(reason): \(warning)") }
        } catch  where error != known {
            reloadRecord.withLock { $0.note(reason, "the certificates in use stay: \(error)", isRefused: true) }
            logger.error("\(reason), and the certificates in use stay: \(error)")
        } catch {
            // Already reported.
        }
    }

    /// Opens the destination of the access log; standard output if the log is off or no file is set.
    static func destination(_ settings: Settings) throws(StartError) -> LineWriter.Destination {
        let path = settings.accessLog.isOn ? settings.accessLog.file : ""
        do {
            return try LineWriter.Destination(path)
        } catch {
            throw .accessLog(path, error)
        }
    }

    private func apply(_ settings: Settings) {
        inForce.withLock { $0 = settings }
        connectionCount.setLimit(settings.connectionLimit)
        bufferBudget.setLimit(settings.bufferLimit)
        access.failures.setRate(settings.access.failures)
        let accessLog = AccessLog(settings, listeners: listenerNames, to: accessLog)
        for context in contexts { context.loop.execute { context.apply(settings, accessLog: accessLog) } }
    }

    private func refuse(_ reason: String, _ outcome: String) -> ReloadOutcome {
        reloadRecord.withLock { $0.noteRefusal(outcome) }
        logger.error("\(reason), and \(outcome)")
        return ReloadOutcome(isReloaded: false, outcome: outcome)
    }

    private func report(_ reason: String, _ change: SettingsChange, _ faults: [String]) -> ReloadOutcome {
        let made = Self.text(change)
        var outcome = made + (tls.map { "; \(Self.text($0))" } ?? "")
        logger.notice("\(reason): \(outcome)")
        if !change.postponed.isEmpty {
            let postponed = "only a restart changes \(change.postponed.joined(separator: ", "))"
            logger.warning("\(reason): \(postponed)")
            outcome += "; " + postponed
        }
        for fault in faults { outcome += "; " + fault }
        for warning in change.settings.warnings + certificateWarnings {
            logger.warning("\(reason): \(warning)")
            outcome += "; " + warning
        }
        if change.changes(\.connectionLimit), let warning = connectionCount.warning {
            logger.warning("\(reason): \(warning)")
            outcome += "; " + warning
        }
        if change.settings.https.mode == .off && change.changes(\.https.mode) {
            logger.warning("https.mode is off: tokens are accepted and given over plain HTTP")
        }
        return ReloadOutcome(isReloaded: true, outcome: outcome)
    }

    /// The settings that have taken effect.
    private static func text(_ change: SettingsChange) -> String {
        if !change.made.isEmpty { return "changed \(change.made.joined(separator: ", "))" }
        return change.postponed.isEmpty ? "no setting has changed" : "no setting has changed yet"
    }

    private static func text(_ tls: WatchedCertificates) -> String {
        let expiry = UTCTime.text(tls.earliestExpiry, "%F")
        let trust = tls.clientAuthorities.map { "; \($0.trust)" }
        return "certificates reloaded, the first expires on \(expiry)\(trust ?? "")"
    }
}

/// How the last reload of settings and files ended; the start counts as the first one.
package struct LastReload: Sendable, Equatable {
    /// Why the settings were not applied when they were last read; nil if they were.
    package private(set) var settingsFault: String?
    /// Why files of certificates, of keys and of the audit log cannot be used, as of their last readings.
    package internal(set) var fileFaults: [String] = []
    /// Why the last attempt to continue the audit log in a new file failed; nil if it did not fail.
    var auditFault: String?
    /// When settings and certificates were last found valid, in seconds since 1970.
    package private(set) var successTime: Int64
    /// How many reloads have ended since the start.
    package private(set) var number: UInt64 = 0
    /// What caused the last one, such as `SIGHUP received`; empty before the first, as is the outcome.
    package private(set) var reason = ""
    /// The outcome's text, as in `ReloadOutcome`.
    package private(set) var outcome = ""
    /// Whether the last reload was refused; unlike for `isSuccessful`, earlier reloads do not count.
    package private(set) var wasRefused = false

    package init(successTime: Int64) {
        self.successTime = successTime
    }

    /// Whether a restart would start with what is in force now.
    package var isSuccessful: Bool { settingsFault == nil && fileFaults.isEmpty }

    /// Notes that settings and certificates were read and applied.
    mutating func noteSuccess(at unixTime: Int64) {
        (settingsFault, successTime) = (nil, unixTime)
    }

    /// Notes that settings were read and not applied, and why.
    package mutating func noteRefusal(_ fault: String) {
        settingsFault = fault
    }

    /// Notes that a reload has ended.
    package mutating func note(_ reason: String, _ outcome: String, isRefused: Bool) {
        number += 1
        (self.reason, self.outcome, wasRefused) = (reason, outcome, isRefused)
    }
}

/// The result of a reload.
package struct ReloadOutcome: Codable, Sendable {
    /// Whether the settings that can change without a restart are now as the files have them.
    package let isReloaded: Bool
    /// Which settings have changed and which need a restart, or why nothing has changed.
    package let outcome: String

    private enum CodingKeys: String, CodingKey {
        case isReloaded = "reloaded"
        case outcome
    }
}
