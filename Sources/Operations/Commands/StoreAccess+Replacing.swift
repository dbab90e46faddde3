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
