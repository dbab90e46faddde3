internal import Audit
internal import Glibc
package import Logging
internal import Server
package import Settings
internal import System
package import TokenStore

/// A command's access to the store: through the server that runs in the data folder, or opened in this process if none does.
package enum StoreAccess: Sendable {
    case running(ControlAccess)
    case own(OwnStore)

    /// Opened in this process.
    package struct OwnStore: Sendable {
        let store: any TokenStore
        /// Locked until the store is closed, unless servers elsewhere may have it open too.
        let directory: DataDirectory
        let administrator: any StoreAdministrator
        /// Nil if nothing is recorded.
        let audit: AuditLog?
    }

    /// A running server, reached over its control socket.
    package struct ControlAccess: Sendable {
        let client: ServerClient
        let path: String
        let processID: Int?
    }

    /// Why a command failed; the description says what to do.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        package init(_ description: String) {
            self.description = description
        }

        /// Describes an error of opening the store.
        ///
        /// For a command, unlike for the server, missing permissions mean that it runs as the wrong user.
        fileprivate init(_ error: StoreOpenError) {
            let advice = "run this as root or as the server's user"
            switch error {
            case .directory(.unusable(let path, let call, let code)) where Self.isRefusal(code):
                description = """
                    this user may not access the data directory \(path) (\(call): \(Self.text(code))); \(advice), \
                    or name another one with --data-directory
                    """
            case .keyRing(.file(let path, let call, let code)) where Self.isRefusal(code):
                description = "this user may not read the key ring \(path) (\(call): \(Self.text(code))); \(advice)"
            default: description = "\(error)"
            }
        }

        private static func isRefusal(_ code: Int32) -> Bool {
            code == EACCES || code == EPERM
        }

        private static func text(_ code: Int32) -> String {
            SystemError.reason(code)
        }
    }

    /// Opens the store, or finds the server that uses it.
    ///
    /// - Parameters:
    ///   - settings: Name the store's folder and key ring.
    ///   - creates: Whether to create a missing store.
    ///   - logger: Receives the store's events.
    package static func open(_ settings: Settings, creates: Bool, logger: Logger) throws(Failure) -> StoreAccess {
        let isShared: Bool
        do throws(StoreOpenError) {
            let provider = try StoreSelection.provider(settings)
            if let path = provider.missingPath, !creates { throw .missing(path: path) }
            isShared = provider.isShared
        } catch {
            throw Failure("\(error)")
        }
        do throws(StartError) {
            return .own(isShared ? try openShared(settings, logger) : try openAlone(settings, logger))
        } catch {
            guard case .store(let error) = error else { throw Failure("\(error)") }
            guard case .directory(.inUse(_, let processID)) = error else { throw Failure(error) }
            let path = ControlSocketAddress.path(settings)
            let client = ServerClient(place: .unix(path: path))
            return .running(ControlAccess(client: client, path: path, processID: processID))
        }
    }

    /// Opens a store that only one process may use.
    ///
    /// Nothing is recorded: the audit log itself shows that no server has run meanwhile.
    private static func openAlone(_ settings: Settings, _ logger: Logger) throws(StartError) -> OwnStore {
        let (store, directory) = try StoreSelection.open(settings, logger: logger)
        return OwnStore(store: store, directory: directory, administrator: store.administrator, audit: nil)
    }

    /// Opens a store that servers elsewhere may be using.
    ///
    /// If a server runs in the data folder, the command is left to it, as its audit log can have one writer only. Otherwise the
    /// audit log is opened here.
    private static func openShared(_ settings: Settings, _ logger: Logger) throws(StartError) -> OwnStore {
        if let holder = DataDirectory.holder(of: settings.dataDirectoryPath) {
            throw .store(.directory(.inUse(path: settings.dataDirectoryPath, processID: holder)))
        }
        let isRecorded = !settings.audit.file.isEmpty
        let (store, directory) = try StoreSelection.open(settings, locks: isRecorded, logger: logger)
        do throws(StartError) {
            guard let audit = try Server.openAuditLog(settings, logger) else {
                return OwnStore(store: store, directory: directory, administrator: store.administrator, audit: nil)
            }
            let trail = OperatorTrail(audit, by: .operator(uid: getuid())) { settings.audit }
            return OwnStore(
                store: store, directory: directory, administrator: AuditedAdministrator(store.administrator, trail),
                audit: audit)
        } catch {
            store.close()
            directory.unlock()
            throw error
        }
    }

    /// Opens a shared store in this process, whatever runs in the data folder; what is done with it is in no audit log.
    static func openUnrecorded(_ settings: Settings, logger: Logger) throws(Failure) -> StoreAccess {
        do throws(StartError) {
            let (store, directory) = try StoreSelection.open(settings, locks: false, logger: logger)
            return .own(OwnStore(store: store, directory: directory, administrator: store.administrator, audit: nil))
        } catch {
            guard case .store(let error) = error else { throw Failure("\(error)") }
            throw Failure(error)
        }
    }

    /// Performs a request, in this process or by the server.
    package func perform<Request: StoreRequest>(
        _ request: Request, _ progress: @escaping @Sendable (StoreProgress) -> Void = { _ in }
    ) async throws(Failure) -> Request.Reply {
        switch self {
        case .own(let own):
            do throws(StoreError) {
                return try await request.answer(own.administrator, progress)
            } catch {
                throw Failure("\(error)")
            }
        case .running(let access):
            let process = access.processID.map { "process \($0)" } ?? "another process"
            do throws(ServerClient.Failure) {
                return try access.client.perform(request, progress)
            } catch {
                switch error {
                case .refused(let reason): throw Failure(reason)
                case .noAnswer, .unreadable: throw Failure("\(process) ended before it answered; try again")
                case .unreachable(let reason, _):
                    throw Failure(
                        """
                        the store is in use by \(process), which cannot be reached over \(access.path) (\(reason)); \
                        run this as the server's user, or stop the server first
                        """
                    )
                }
            }
        }
    }

    /// The largest total of the tokens' encoded sizes in one request; nil for no limit.
    package var requestLimit: Int? {
        switch self {
        case .own: nil
        // Less the JSON around the tokens.
        case .running: ControlSocketAddress.bodyLimit - 1_024
        }
    }

    /// Closes a store that was opened in this process.
    package func close() {
        guard case .own(let own) = self else { return }
        own.store.close()
        own.audit?.close()
        own.directory.unlock()
    }

    // MARK: - Migrating

    /// Makes or changes the tables of a store that several servers share.
    ///
    /// - Parameters:
    ///   - settings: Name the servers' database and role.
    ///   - url: The database and the role that owns the tables; nil for those of the settings.
    ///   - contracts: Whether what only earlier versions need is removed.
    ///   - serverRole: The role that is granted what servers need; nil for that of the settings, if it is another one.
    package static func migrate(
        _ settings: Settings, url: String?, contracts: Bool, serverRole: String?
    ) throws(Failure) -> SchemaMigration {
        var (own, role) = (settings, serverRole)
        if let url {
            do throws(StoreURL.Fault) {
                let owner = try StoreURL(url).user
                if role == nil, let server = settings.storeURL?.user, server != owner { role = server }
            } catch {
                throw Failure("the URL of --url \(error)")
            }
            own.store.url = url
        }
        do throws(StoreOpenError) {
            let provider = try StoreSelection.provider(own, ignoresCredential: url != nil)
            guard let migrator = provider.migrator else { throw .store(StoreFault(StoreCapability.migration.absence)) }
            return try migrator.migrate(contracts: contracts, serverRole: role)
        } catch {
            throw Failure("\(error)")
        }
    }

    // MARK: - Replacing

    /// Replaces the store by a backup; refused while a server runs.
    package static func restore(
        _ settings: Settings, from path: String, keepsSessions: Bool, logger: Logger,
        _ progress: (StoreProgress) -> Void
    ) throws(Failure) -> StoreReplacement {
        try replace(settings, .restore, logger) { (store) throws(StoreError) in
            try store.restore(path, keepsSessions: keepsSessions, progress)
        }
    }

    /// Encrypts or decrypts the whole store; refused while a server runs.
    package static func convert(
        _ settings: Settings, isSealed: Bool, logger: Logger, _ progress: (StoreProgress) -> Void
    ) throws(Failure) -> StoreReplacement {
        try replace(settings, .conversion, logger) { (store) throws(StoreError) in
            try store.convert(isSealed: isSealed, progress)
        }
    }

    private static func replace(
        _ settings: Settings, _ capability: StoreCapability, _ logger: Logger,
        _ body: (any OfflineStore) throws(StoreError) -> StoreReplacement
    ) throws(Failure) -> StoreReplacement {
        do {
            let directory = try StoreSelection.lock(settings)
            defer { directory.unlock() }
            let store = try StoreSelection.provider(settings).takeOffline(in: directory) { event in
                logger.log(level: event.severity.level, "\(event)")
            }
            guard let store else { throw Failure(capability.absence) }
            return try body(store)
        } catch let error as StoreOpenError {
            throw Failure(error)
        } catch {
            throw Failure("\(error)")
        }
    }
}
