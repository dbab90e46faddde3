package import Audit
import Glibc
package import Logging
import Server
package import Settings
import System
package import TokenStore

/// A command's access to the store: through the server that runs in the data folder, or opened in this process if none does.
package struct StoreAccess: Sendable {
    private enum Way {
        case running(ServerClient, processID: Int?)
        /// Locked until the store is closed, unless servers elsewhere may have it open too; without a trail if nothing is recorded.
        case own(any TokenStore, DataDirectory, OperatorTrail?)
    }

    private let way: Way

    /// Opens the store, or finds the server that uses it.
    ///
    /// - Parameters:
    ///   - settings: Name the store's folder and key ring.
    ///   - action: What is about to be done, as the audit log calls it; nil if that is never recorded.
    ///   - creates: Whether to create a missing store, or a key ring for a database that no server has used yet.
    ///   - logger: Receives the store's events.
    package static func open(
        _ settings: Settings, for action: AuditEvent.Action?, creates: Bool, logger: Logger
    ) throws -> StoreAccess {
        let provider = try StoreSelection.provider(settings, logger, makesKeyRing: creates)
        if !creates { try refuseMissing(provider) }
        let client = ServerClient(in: settings.dataDirectoryPath, outlastsWork: true)
        let end = MonotonicTime.now + Duration.seconds(5)
        while true {
            do {
                return try own(provider, settings, for: action, logger)
            } catch let fault as StoreOpenError {
                switch fault {
                // A server would listen at the socket. So this is most probably another command, which ends soon.
                case .directory(.inUse) where .now < end && !client.hasListener: usleep(50_000)
                case .directory(.inUse(_, let processID)):
                    return StoreAccess(way: .running(client, processID: processID))
                // This process cannot write here, but a server may have the folder mounted for writing.
                case .directory(.unusable(_, _, EROFS)) where client.hasListener:
                    return StoreAccess(way: .running(client, processID: nil))
                default: throw CommandFailure(fault)
                }
            }
        }
    }

    private static func own(
        _ provider: any StoreProvider, _ settings: Settings, for action: AuditEvent.Action?, _ logger: Logger
    ) throws -> StoreAccess {
        let directory = try folder(of: provider, settings)
        var audit: OperatorTrail?
        do {
            audit = try OperatorTrail.open(settings, for: action, logger)
            return StoreAccess(way: .own(try provider.open(in: directory), directory, audit))
        } catch {
            audit?.log.close()
            directory.unlock()
            throw error
        }
    }

    static func refuseMissing(_ provider: any StoreProvider) throws(StoreOpenError) {
        if let files = provider as? any FileStoreProvider, files.isMissing { throw .missing(path: files.path) }
    }

    /// The data folder, locked for a store that only one process may use, and for the audit log.
    ///
    /// Fails if a server runs in the folder: also with a store that servers elsewhere may be using, the command is then left to this
    /// server, as its audit log can have one writer only.
    private static func folder(
        of provider: any StoreProvider, _ settings: Settings
    ) throws(StoreOpenError) -> DataDirectory {
        if provider.isShared {
            if let holder = DataDirectory.holder(of: settings.dataDirectoryPath) {
                throw .directory(.inUse(path: settings.dataDirectoryPath, processID: holder))
            }
            if settings.audit.file.isEmpty { return DataDirectory(withoutLock: settings.dataDirectoryPath) }
        }
        return try StoreSelection.lock(settings)
    }

    /// Performs a request, in this process or by the server.
    package func perform<Request: StoreRequest>(
        _ request: Request, _ progress: @escaping @Sendable (StoreProgress) -> Void = { _ in }
    ) async throws -> Request.Reply {
        switch way {
        case .own(let store, _, let trail):
            trail?.log.keepUp()
            var audited = AuditedStore(store.administrator, trail)
            audited.progress = progress
            return try await request.answer(audited)
        case .running(let client, let processID):
            do {
                return try client.perform(request, progress)
            } catch {
                guard case .unreachable = error else { throw error }
                let process = processID.map { "process \($0)" } ?? "another process"
                throw CommandFailure(
                    "the store is in use by \(process), and \(client.path) cannot be used: \(error.besideProcess)")
            }
        }
    }

    /// The largest total of the tokens' encoded sizes in one request; nil for no limit.
    package var requestLimit: Int? {
        switch way {
        case .own: nil
        // Less the JSON around the tokens.
        case .running: ControlSocketAddress.bodyLimit - 1_024
        }
    }

    /// Closes a store that was opened in this process.
    package func close() {
        guard case .own(let store, let directory, let trail) = way else { return }
        // The audit log first: once the store is closed, a waiting process may take the folder and open the log.
        trail?.log.close()
        store.close()
        directory.unlock()
    }

    // MARK: - Work on a whole store

    /// Verifies a backup in this process, whether or not a server runs.
    package static func verifyBackup(
        _ settings: Settings, at path: String, _ progress: (StoreProgress) -> Void
    ) throws -> BackupVerification {
        try files(settings, for: .backup).verify(path, progress)
    }

    /// Locks a folder for backups that are named by their time.
    package static func backupFolder(_ settings: Settings, _ path: String) throws -> BackupFolder {
        try BackupFolder(path, files(settings, for: .backup))
    }

    private static func files(
        _ settings: Settings, for capability: StoreCapability, _ logger: Logger? = nil
    ) throws -> any FileStoreProvider {
        guard let files = try StoreSelection.provider(settings, logger) as? any FileStoreProvider else {
            throw CommandFailure(capability.absence)
        }
        return files
    }

    /// The path of the key ring with which a store is sealed.
    package static func keyRingPath(_ settings: Settings) -> String { StoreSelection.keyRing(settings).path }

    /// Creates the tables of a store that several servers share.
    ///
    /// - Parameters:
    ///   - settings: The servers', with their database and role.
    ///   - url: The database, with the role that owns the tables; nil for those of the settings.
    package static func migrate(_ settings: Settings, url: String?) throws -> SchemaMigration {
        var own = settings
        if let url {
            do {
                _ = try StoreURL(url)
            } catch {
                throw CommandFailure("the URL of --url \(error)")
            }
            own.store.url = url
        }
        let provider = try StoreSelection.provider(own, ignoresCredential: url != nil)
        guard let shared = provider as? any SharedStoreProvider else {
            throw CommandFailure(StoreCapability.migration.absence)
        }
        return try shared.migrate()
    }

    /// Replaces the store by a backup; refused while a server runs.
    package static func restore(
        _ settings: Settings, from path: String, keepsSessions: Bool, lacksKeys: Bool, logger: Logger,
        _ progress: (StoreProgress) -> Void
    ) async throws -> StoreReplacement {
        let files = try files(settings, for: .restore, logger)
        do {
            let directory = try StoreSelection.lock(settings)
            defer { directory.unlock() }
            return try await recording(
                .restore, settings, logger,
                try files.restore(
                    in: directory, from: path, keepsSessions: keepsSessions, lacksKeys: lacksKeys, progress))
        } catch let error as StoreOpenError {
            throw CommandFailure(error)
        }
    }

    /// Performs an action on a whole store, whose folder the caller has locked, and records it in the audit log, if there is one.
    static func recording<Value>(
        _ action: AuditEvent.Action, _ settings: Settings, _ logger: Logger,
        _ body: @autoclosure () async throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        let audit: OperatorTrail?
        do {
            audit = try OperatorTrail.open(settings, for: action, logger)
        } catch {
            throw .refused("\(error)")
        }
        defer { audit?.log.close() }
        return try await audit.recording(action, try await body())
    }
}

/// Why a command failed; the description says what to do.
package struct CommandFailure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }

    /// Describes an error of opening the store.
    ///
    /// The advice differs from the server's: a command without permissions runs as the wrong user, and if its file system is
    /// read-only, that is not the sandbox of a service: the disk has failed.
    init(_ error: StoreOpenError) {
        let advice = "run this as root or as the server's user"
        switch error {
        case .directory(.unusable(let path, let call, let code)) where [EACCES, EPERM].contains(code):
            description = """
                this user may not access the data directory \(path) (\(call): \(SystemError.reason(code))); \(advice), \
                or name another one with --data-directory
                """
        case .directory(.unusable(let path, let call, let code)) where code == EROFS:
            description = """
                the data directory \(path) cannot be used (\(call): \(SystemError.reason(code))); mount its file system for writing or, if \
                its disk has failed, copy tokens.db, tokens.db-wal, keys and erasures to another disk, and name that folder with \
                --data-directory
                """
        case .keyRing(.file(let path, let error)) where error.isPermissionDenied:
            description = "this user may not read the key ring \(path) (\(error)); \(advice)"
        default: description = "\(error)"
        }
    }
}
