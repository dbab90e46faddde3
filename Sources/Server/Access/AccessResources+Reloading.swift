internal import Audit
internal import JWT
internal import Logging
internal import Synchronization
internal import System
internal import TokenService

extension AccessResources {
    /// The kinds of files with keys.
    package enum KeyFile: String, CaseIterable, Sendable {
        case apiKeys = "API keys"
        case jwtKeys = "keys for JWTs"
    }

    /// Reads the files of keys again that have changed; those that cannot be used leave the present keys in use.
    ///
    /// - Parameters:
    ///   - files: Those to look at.
    ///   - rereads: Whether files are read that have not changed either, so that a fault is reported again.
    /// - Returns: What is wrong with the files, as it was logged.
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

    /// - Returns: What is wrong with the file, as it was logged; nil for nothing.
    private func reload(_ file: KeyFile, _ logger: Logger, rereads: Bool) -> String? {
        record([])
        do {
            switch file {
            case .apiKeys: try reloadAPIKeys(rereads: rereads, logger)
            case .jwtKeys: try reloadJWTKeys(rereads: rereads, logger)
            }
            return nil
        } catch {
            let fault = "the file of \(file.rawValue) cannot be used, so the previous keys stay in use: \(error)"
            logger.error("\(fault)")
            return fault
        }
    }

    private func reloadJWTKeys(rereads: Bool, _ logger: Logger) throws(JWTKeyFileError) {
        guard let jwtKeys else { return }
        let hasChanged = jwtKeys.hasChanged
        guard rereads || hasChanged else { return }
        try jwtKeys.reload()
        guard hasChanged else { return }
        logger.notice("the keys for JWTs have changed, there are \(jwtKeys.content.keys.count) now")
        reportUnusedKeys(logger)
    }

    /// Logs which keys of the issuer are not used although they seem to be meant for it; keys for encryption are usual in a set.
    func reportUnusedKeys(_ logger: Logger) {
        for key in jwtKeys?.content.keys.skipped ?? [] where key.reason.isFault {
            logger.warning("the keys for JWTs: \(key)")
        }
    }

    private func reloadAPIKeys(rereads: Bool, _ logger: Logger) throws(APIKeyFileError) {
        guard let apiKeys, rereads || apiKeys.hasChanged else { return }
        let before = apiKeys.content
        try apiKeys.reload()
        report(apiKeys.content, since: before, logger)
    }

    // MARK: - Reporting

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
        record(events)
    }

    /// The most events that are kept while the audit log cannot be written.
    private static let unrecordedLimit = 4_000

    /// Records events after those that could not be recorded before; what cannot be recorded now is kept for the next time.
    private func record(_ events: [AuditEvent]) {
        guard let audit else { return }
        unrecorded.withLock { unrecorded in
            if unrecorded.isEmpty && events.isEmpty { return }
            let kept = (unrecorded + events).suffix(Self.unrecordedLimit)
            do throws(AuditError) {
                try audit.append(unrecorded + events, retrying: kept.count)
                unrecorded = []
            } catch {
                // The audit log itself reports that it cannot be written, and how many events it has lost.
                unrecorded = Array(kept)
            }
        }
    }

    /// The largest number of names in a line of the log.
    private static let nameLimit = 20

    private static func shortened(_ names: [String]) -> String {
        let rest = names.count - nameLimit
        return names.prefix(nameLimit).joined(separator: ", ") + (rest > 0 ? " and \(rest) more" : "")
    }
}
