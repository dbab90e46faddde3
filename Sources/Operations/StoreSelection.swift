import Audit
import FoundationEssentials
import Logging
import SQLiteStore
import Server
import Settings
import TokenStore

#if PostgreSQL
import PostgresStore
#endif
#if TokenRefresh
import TokenRefresh
#endif

/// Chooses the store; no other file knows which stores there are.
enum StoreSelection {
    /// The store that the settings describe.
    ///
    /// - Parameters:
    ///   - settings: Name the store and how it is used.
    ///   - logger: Receives the store's events; nil if nobody wants to know them.
    ///   - ignoresCredential: Whether to ignore the credential with the database's password, as it is another role's.
    ///   - isServing: Whether it is for a server, and not for a command.
    ///   - makesKeyRing: As in `StoreOptions`.
    ///   - inspector: As there.
    static func provider(
        _ settings: Settings, _ logger: Logger? = nil, ignoresCredential: Bool = false, isServing: Bool = false,
        makesKeyRing: Bool = true, _ inspector: (any TokenInspector)? = nil
    ) throws(StoreOpenError) -> any StoreProvider {
        var options = options(settings, logger)
        (options.isServing, options.makesKeyRing, options.inspector) = (isServing, makesKeyRing, inspector)
        guard let url = settings.storeURL else {
            precondition(settings.store.url.isEmpty, "store.url was not checked when it was read")
            return SQLiteStoreProvider(directory: settings.dataDirectoryPath, options: options)
        }
        #if PostgreSQL
        return PostgresStoreProvider(
            try postgres(settings, url, ignoresCredential: ignoresCredential), options: options)
        #else
        _ = url
        preconditionFailure("without PostgreSQL, reading the settings refuses store.url")
        #endif
    }

    #if PostgreSQL
    /// The version of the library for databases.
    static var clientLibrary: String? { "libpq \(PostgresLibrary.version)" }

    private static func postgres(
        _ settings: Settings, _ url: StoreURL, ignoresCredential: Bool
    ) throws(StoreOpenError) -> PostgresOptions {
        let credential =
            ignoresCredential
            ? nil
            : PasswordFile(
                credential: Settings.Store.passwordCredential, of: "the database", ProcessInfo.processInfo.environment)
        _ = try credential?.read()
        return PostgresOptions(
            url: settings.store.url, hosts: url.hosts,
            password: { try? credential?.read() }, connections: settings.store.connections,
            timeout: settings.storeTimeout, durability: settings.store.durability ?? url.durability
        )
    }
    #else
    /// Nil, as this program has no library for databases.
    static var clientLibrary: String? { nil }
    #endif

    static func keyRing(_ settings: Settings) -> KeyRingFile {
        KeyRingFile(
            path: settings.sealing.keyRing,
            credentials: ProcessInfo.processInfo.environment["CREDENTIALS_DIRECTORY"],
            directory: settings.dataDirectoryPath
        )
    }

    private static func options(_ settings: Settings, _ logger: Logger?) -> StoreOptions {
        var options = StoreOptions(keyRing: keyRing(settings))
        options.retention = settings.storeRetention
        options.byteLimit = settings.store.byteLimit
        options.queueLimit = settings.bufferLimit / 2
        options.queueTime = settings.storeTimeout
        options.acceptsDamagedWAL = settings.store.acceptsDamagedWAL
        if let logger { options.report = { logger.log(level: $0.severity.level, "\($0)") } }
        return options
    }

    /// Locks the data folder and opens a server's store, also if its database cannot be reached.
    ///
    /// - Returns: The store, and the folder, which stays locked as long as it is referenced or until the store is closed.
    static func open(
        _ settings: Settings, _ logger: Logger, _ inspector: (any TokenInspector)? = nil
    ) throws(StoreOpenError) -> (store: any TokenStore, directory: DataDirectory) {
        // Before the folder is locked, which creates it.
        let provider = try provider(settings, logger, isServing: true, inspector)
        let directory = try lock(settings)
        #if TokenRefresh
        let refresh = try refreshProvider(settings.refresh)
        let store = try provider.open(in: directory)
        guard let refresh else { return (store, directory) }
        let refreshing = RefreshingStore(
            store, refresh, patience: settings.refresh.wait, hidesRefreshTokens: settings.refresh.hidesRefreshTokens
        ) { event in logger.log(level: event.severity.level, "\(event)") }
        return (refreshing, directory)
        #else
        return (try provider.open(in: directory), directory)
        #endif
    }

    /// Has a store's refreshes recorded in the audit log.
    static func record(
        refreshesOf store: any TokenStore, in audit: AuditLog?, isRequired: @escaping @Sendable () -> Bool
    ) {
        #if TokenRefresh
        guard let audit, let refreshing = store as? RefreshingStore else { return }
        refreshing.refresher.record(in: audit, isRequired: isRequired)
        #endif
    }

    /// Checks what a start needs for refreshing, unless it is a credential, which only the service has.
    static func examineRefreshing(_ settings: Settings) throws(StoreOpenError) {
        #if TokenRefresh
        if !settings.refresh.clientSecretFile.isEmpty { _ = try refreshProvider(settings.refresh) }
        #endif
    }

    #if TokenRefresh
    /// Nil if tokens are not refreshed.
    private static func refreshProvider(_ settings: RefreshSettings) throws(StoreOpenError) -> RefreshProvider? {
        let kind: RefreshProvider.Kind
        switch settings.provider {
        case nil: return nil
        case .facebook: kind = .facebook
        case .oauth2: kind = .oauth2
        case .oauth2Post: kind = .oauth2Post
        }
        let path = settings.clientSecretFile
        let file =
            path.isEmpty
            ? PasswordFile(
                credential: RefreshSettings.secretCredential, of: "refresh.client_id",
                ProcessInfo.processInfo.environment)
            : PasswordFile(path: path, subject: "refresh.client_secret_file (\(path))")
        _ = try file?.read()
        if file == nil, kind == .facebook {
            throw .store(
                StoreFault(
                    """
                    refresh.provider is facebook, and there is no app secret; write it into a file, and name that in \
                    refresh.client_secret_file
                    """))
        }
        return RefreshProvider(
            kind, url: settings.url.isEmpty ? RefreshSettings.facebookURL : settings.url, clientID: settings.clientID,
            readSecret: { try file?.read() })
    }
    #endif

    /// Locks the data folder; creates it if it is missing.
    static func lock(_ settings: Settings) throws(StoreOpenError) -> DataDirectory {
        do {
            return try DataDirectory(path: settings.dataDirectoryPath, creates: true)
        } catch {
            throw .directory(error)
        }
    }
}

extension StoreEvent.Severity {
    fileprivate var level: Logger.Level {
        switch self {
        case .fault: .error
        case .warning: .warning
        case .note: .notice
        case .detail: .info
        case .trace: .debug
        }
    }
}
