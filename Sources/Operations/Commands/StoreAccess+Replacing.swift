internal import Audit
package import Logging
internal import Server
package import Settings
package import TokenStore

extension StoreAccess {
    /// Replaces the store by a backup; refused while a server runs.
    package static func restore(
        _ settings: Settings, from path: String, keepsSessions: Bool, logger: Logger,
        _ progress: (StoreProgress) -> Void
    ) async throws(Failure) -> StoreReplacement {
        try await replace(settings, .restore, .restore, logger) { (store) throws(StoreError) in
            try store.restore(path, keepsSessions: keepsSessions, progress)
        }
    }

    /// Why a server with other settings could not read what was restored; nil if it could.
    ///
    /// Nil also if its key ring is missing here: it may be a credential, and otherwise the server says so and does not start.
    ///
    /// - Parameters:
    ///   - restored: What was restored.
    ///   - settings: Those of the restore.
    ///   - others: Those of the server.
    package static func ringFault(
        of restored: StoreReplacement, restoredWith settings: Settings, for others: Settings
    ) -> String? {
        let (used, other) = (StoreSelection.keyRing(settings), StoreSelection.keyRing(others))
        guard let numbers = restored.keyNumbers, !numbers.isEmpty, others.sealing.isEnabled, used.path != other.path,
            let ring = try? KeyRingExamination.examine(used)
        else { return nil }
        do throws(KeyRingError) {
            guard let found = try KeyRingExamination.examine(other) else { return nil }
            guard found.fingerprint == ring.fingerprint else {
                return "the key ring \(other.path) is that of another store"
            }
            let missing = numbers.filter { !found.numbers.contains($0) }.map { "key \($0)" }
            guard !missing.isEmpty else { return nil }
            return """
                the key ring \(other.path) lacks \(missing.joined(separator: " and ")), with which restored tokens are sealed
                """
        } catch {
            return "\(error)"
        }
    }

    /// Encrypts or decrypts the whole store; refused while a server runs.
    package static func convert(
        _ settings: Settings, isSealed: Bool, logger: Logger, _ progress: (StoreProgress) -> Void
    ) async throws(Failure) -> StoreReplacement {
        try await replace(settings, .conversion, isSealed ? .seal : .unseal, logger) { (store) throws(StoreError) in
            try store.convert(isSealed: isSealed, progress)
        }
    }

    private static func replace(
        _ settings: Settings, _ capability: StoreCapability, _ action: AuditEvent.Action, _ logger: Logger,
        _ body: (any OfflineStore) throws(StoreError) -> StoreReplacement
    ) async throws(Failure) -> StoreReplacement {
        do {
            let directory = try StoreSelection.lock(settings)
            defer { directory.unlock() }
            let store = try StoreSelection.provider(settings).takeOffline(in: directory) { event in
                logger.log(level: event.severity.level, "\(event)")
            }
            guard let store else { throw Failure(capability.absence) }
            guard let audit = try CommandAuditLog.open(settings, for: action, logger) else { return try body(store) }
            defer { audit.close() }
            return try await audit.trail.recording(action) { () async throws(StoreError) in try body(store) }
        } catch let error as StoreOpenError {
            throw Failure(error)
        } catch {
            throw Failure("\(error)")
        }
    }
}
