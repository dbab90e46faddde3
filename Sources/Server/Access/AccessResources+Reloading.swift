internal import Audit
internal import JWT
internal import Logging
internal import TokenService

extension AccessResources {
    /// Reads the files of keys again that have changed; those that cannot be used leave the present keys in use.
    ///
    /// Blocks for as long as reading takes.
    ///
    /// - Parameter rereads: Whether files are read that have not changed either, so that a fault is reported again.
    /// - Returns: What is wrong with the files, as it was logged.
    @discardableResult
    func reloadChangedFiles(_ logger: Logger, rereads: Bool = false) -> [String] {
        var faults: [String] = []
        do throws(APIKeyFileError) {
            try reload(apiKeys, rereads: rereads, logger)
        } catch {
            faults.append("the API keys in use stay: \(error)")
        }
        do throws(AdminKeyFileError) {
            try reload(admin.present, rereads: rereads, logger)
        } catch {
            faults.append("the admin keys in use stay: \(error)")
        }
        do throws(JWTKeyFileError) {
            if let keys = try jwtKeys?.reloadIfChanged() {
                logger.notice("the keys for JWTs have changed, there are \(keys.count) now")
                // Keys for encryption are usual in such files.
                for skipped in keys.skipped where skipped.reason.isFault {
                    logger.warning("a key for JWTs is not used: \(skipped)")
                }
            }
        } catch {
            faults.append("the keys for JWTs in use stay: \(error)")
        }
        for fault in faults { logger.error("\(fault)") }
        return faults
    }

    /// Reads a file again, and logs and records the names of the keys that were added and removed.
    private func reload<Scope>(
        _ file: BearerKeyFile<Scope>?, rereads: Bool, _ logger: Logger
    ) throws(BearerKeyFileError<Scope>) {
        guard let file, rereads || file.hasChanged else { return }
        let before = file.keys
        try file.reload()
        let (added, removed) = file.keys.changes(since: before)
        if added.isEmpty && removed.isEmpty { return }
        let changes = [("added", added), ("removed", removed)].compactMap { word, names in
            names.isEmpty ? nil : "\(word) \(Self.shortened(names))"
        }
        logger.notice(
            """
            the \(Scope.kind.plural) have changed: \(changes.joined(separator: "; ")); there are \(file.keys.all.count) now
            """
        )
        // Who has changed the file cannot be seen from it.
        let events = [(Scope.kind.addition, added), (Scope.kind.removal, removed)].flatMap { action, names in
            names.map { AuditEvent(action, .ok, by: .operator(uid: nil), key: $0) }
        }
        try? audit?.append(events)
    }

    /// The largest number of names in a line of the log.
    private static let nameLimit = 20

    private static func shortened(_ names: [String]) -> String {
        let rest = names.count - nameLimit
        return names.prefix(nameLimit).joined(separator: ", ") + (rest > 0 ? " and \(rest) more" : "")
    }
}
