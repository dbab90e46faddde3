import Audit
import Cryptography
import Dispatch
import EventLoop
import JWT
import Logging
import Settings
import Synchronization
import System
package import TokenService
import TokenStore

/// What all loops share to find out who a request is from: caches, limits and the files of keys.
///
/// Any thread.
package final class AccessResources: Sendable {
    /// The sessions that were used recently.
    package let sessions: SessionCache
    /// The failures of addresses.
    let failures: FailureLimiter
    /// Nil without an API.
    let apiKeys: APIKeyFile?
    /// The keys of the JWTs' issuer, with the tokens that were verified; nil in other modes than `bearer`.
    package let jwtKeys: JWTKeyFile?
    /// Facebook's app secret; nil without `facebook.app_secret_file`.
    let appSecret: AppSecretFile?
    /// Those who have left the app at Facebook.
    let departures: Departures
    /// Nil without `audit.file`.
    let audit: AuditLog?
    /// Whether the log has a warning about a proxy that names nobody.
    let hasWarnedOfNobody = Atomic<Bool>(false)
    /// A queue for each kind of file, so that they do not wait for one another.
    let readers = Dictionary(uniqueKeysWithValues: KeyFile.allCases.map { ($0, DispatchQueue(label: $0.rawValue)) })

    /// - Parameters:
    ///   - settings: The settings at the start.
    ///   - seesEnds: Whether the store reports the end of every session; otherwise each request asks the store.
    ///   - audit: Nil without `audit.file`.
    ///   - departures: The process's.
    ///   - report: Gets what is said of JWTs that are refused.
    init(
        _ settings: Settings, seesEnds: Bool = true, audit: AuditLog? = nil, _ departures: Departures = Departures(),
        report: @escaping @Sendable (String) -> Void = { _ in }
    ) throws(StartError) {
        (self.audit, self.departures) = (audit, departures)
        // A session takes a tenth of what an answer takes.
        sessions = SessionCache(limit: settings.cacheLimit / 4, seesEnds: seesEnds)
        failures = FailureLimiter(settings.access.failures)
        var setting = "access.api.keys_file"
        do {
            let path = settings.access.apiKeysFile
            apiKeys = path.isEmpty ? nil : try APIKeyFile(path, APIKeys.loadExisting)
            setting = "facebook.app_secret_file"
            let secret = settings.access.facebookSecretFile
            appSecret = secret.isEmpty ? nil : try AppSecretFile(secret, SecretKey.appSecret(ofFile:))
            setting = "access.bearer.keys_file"
            if settings.access.mode == .bearer {
                let rules = settings.access.bearer.rules
                jwtKeys = try JWTKeyFile(settings.access.bearer.keysFile) { path throws(KeyFileError) in
                    VerifiedTokens(try JWTVerifier(keysOf: path, rules, report: report))
                }
            } else {
                jwtKeys = nil
            }
        } catch {
            throw StartError("\(setting): the file \(error)")
        }
    }
}

extension AccessResources {
    /// The kinds of files with keys.
    package enum KeyFile: String, CaseIterable, Sendable {
        case apiKeys = "API keys"
        case jwtKeys = "keys for JWTs"
        case appSecret = "Facebook's app secret"
    }

    /// Reads those files of keys again that have changed or could not be used; if one cannot be used, its former keys stay in use.
    ///
    /// - Parameters:
    ///   - files: Which files to check.
    ///   - rereads: Whether to read unchanged files too, and to report known faults again.
    /// - Returns: What is wrong with the files that were read.
    @discardableResult
    func reloadChangedFiles(
        _ logger: Logger, _ files: [KeyFile] = KeyFile.allCases, rereads: Bool = false
    ) async -> [String] {
        var faults: [String] = []
        for file in files {
            if let fault = await readers[file]?.run({ self.reload(file, logger, rereads: rereads) }) ?? nil {
                faults.append(fault)
            }
        }
        return faults
    }

    /// - Returns: What is wrong with the file; nil if nothing is.
    private func reload(_ file: KeyFile, _ logger: Logger, rereads: Bool) -> String? {
        let known = fault(of: file)
        switch file {
        case .apiKeys:
            guard let apiKeys, rereads || apiKeys.haveChanged else { return nil }
            let before = apiKeys.content
            try? apiKeys.reload()
            report(apiKeys.content, since: before, logger)
        case .jwtKeys:
            guard let jwtKeys, rereads || jwtKeys.haveChanged else { return nil }
            let haveChanged = jwtKeys.haveChanged
            try? jwtKeys.reload()
            if haveChanged, jwtKeys.fault == nil {
                logger.notice("the keys for JWTs have changed, there are \(jwtKeys.content.verifier.keys.count) now")
                reportUnusedKeys(logger)
            }
        case .appSecret:
            guard let appSecret, rereads || appSecret.haveChanged else { return nil }
            try? appSecret.reload()
        }
        let fault = fault(of: file)
        if let fault, rereads || fault != known { logger.error("\(fault)") }
        return fault
    }

    /// What is wrong with the files, as of their last readings.
    var faults: [String] { KeyFile.allCases.compactMap(fault) }

    private func fault(of file: KeyFile) -> String? {
        let reason =
            switch file {
            case .apiKeys: apiKeys?.fault
            case .jwtKeys: jwtKeys?.fault
            case .appSecret: appSecret?.fault
            }
        return reason.map { "the file of \(file.rawValue) cannot be used, so the previous keys stay in use: \($0)" }
    }

    /// Logs which keys of the issuer are not used although they seem to be for signatures; keys for encryption are usual in a set.
    func reportUnusedKeys(_ logger: Logger) {
        for key in jwtKeys?.content.verifier.keys.skipped ?? [] where key.reason.isFault {
            logger.warning("the keys for JWTs: \(key)")
        }
    }

    // MARK: - Reporting

    /// How the keys for JWTs are used; nil without any.
    var keySummary: String? { jwtKeys.map { "the keys for JWTs: \($0.content.verifier.keys.summary)" } }

    /// Logs and records the names of the keys that were added and removed.
    private func report(_ keys: APIKeys, since before: APIKeys, _ logger: Logger) {
        let (added, removed) = keys.changes(since: before)
        if added.isEmpty && removed.isEmpty { return }
        let changes = [("added", added), ("removed", removed)].compactMap { word, names in
            names.isEmpty ? nil : "\(word) \(Self.shortened(names))"
        }
        logger.notice(
            """
            the API keys have changed: \(changes.joined(separator: "; ")); there are \(keys.all.count) now
            """
        )
        // Without a user id, because the file does not say who has changed it.
        let events = [(AuditEvent.Action.addAPIKey, added), (.removeAPIKey, removed)].flatMap { action, names in
            names.map { AuditEvent(action, .ok, by: .operator(uid: nil), key: $0) }
        }
        audit?.submit(events, isRetried: true)
    }

    /// The largest number of names in a line of the log.
    private static let nameLimit = 20

    private static func shortened(_ names: [String]) -> String {
        let rest = names.count - nameLimit
        return names.prefix(nameLimit).joined(separator: ", ") + (rest > 0 ? " and \(rest) more" : "")
    }
}

extension DispatchQueue {
    /// Does work that may wait for a disk, one after the other, so that the last reading is used last.
    ///
    /// On a thread of Dispatch's: a file system that does not answer then holds up neither the work of other queues nor Swift's
    /// tasks, whose threads are few.
    func run<Result: Sendable>(_ work: @escaping @Sendable () -> Result) async -> Result {
        await withCheckedContinuation { continuation in
            async { continuation.resume(returning: work()) }
        }
    }
}
