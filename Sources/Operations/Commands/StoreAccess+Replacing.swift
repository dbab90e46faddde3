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
        do {
            let directory = try StoreSelection.lock(settings)
            defer { directory.unlock() }
            let store = try StoreSelection.provider(settings).takeOffline(in: directory) { event in
                logger.log(level: event.severity.level, "\(event)")
            }
            guard let store else { throw Failure(StoreCapability.restore.absence) }
            return try await recording(.restore, settings, logger) { () throws(StoreError) in
                try store.restore(path, keepsSessions: keepsSessions, progress)
            }
        } catch let error as StoreOpenError {
            throw Failure(error)
        } catch {
            throw Failure("\(error)")
        }
    }

    /// Does what concerns a whole store, while the caller has locked its folder, and writes that to the audit log, if there is one.
    static func recording<Value>(
        _ action: AuditEvent.Action, _ settings: Settings, _ logger: Logger,
        _ body: () async throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        let audit: CommandAuditLog?
        do throws(StartError) {
            audit = try CommandAuditLog.open(settings, for: action, logger)
        } catch {
            throw .refused("\(error)")
        }
        guard let audit else { return try await body() }
        defer { audit.close() }
        return try await audit.trail.recording(action, body)
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
}
