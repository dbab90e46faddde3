import FoundationEssentials
import Logging
import SQLiteStore
import Server
import Settings
import TokenStore

#if PostgreSQL
import PostgresStore
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
    static func provider(
        _ settings: Settings, _ logger: Logger? = nil, ignoresCredential: Bool = false, isServing: Bool = false
    ) throws(StoreOpenError) -> any StoreProvider {
        var options = options(settings, logger)
        options.isServing = isServing
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
        let credential = ignoresCredential ? nil : PasswordCredential(ProcessInfo.processInfo.environment)
        _ = try credential?.read()
        return PostgresOptions(
            url: settings.store.url, hosts: url.hosts,
            password: { try? credential?.read() }, connections: settings.store.connections,
            timeout: settings.store.timeout, durability: settings.store.durability ?? url.durability
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
        options.isSealed = settings.sealing.isEnabled
        options.retention = settings.storeRetention
        options.byteLimit = settings.store.byteLimit
        options.queueLimit = settings.bufferLimit / 2
        options.queueTime = settings.store.queueTime
        options.acceptsDamagedWAL = settings.store.acceptsDamagedWAL
        if let logger { options.report = { logger.log(level: $0.severity.level, "\($0)") } }
        return options
    }

    /// Locks the data folder and opens a server's store, also if its database cannot be reached.
    ///
    /// - Returns: The store, and the folder, which stays locked as long as it is referenced or until the store is closed.
    static func open(
        _ settings: Settings, _ logger: Logger
    ) throws(StoreOpenError) -> (store: any TokenStore, directory: DataDirectory) {
        // Before the folder is locked, which creates it.
        let provider = try provider(settings, logger, isServing: true)
        let directory = try lock(settings)
        return (try provider.open(in: directory), directory)
    }

    /// Locks the data folder; creates it if it is missing.
    static func lock(_ settings: Settings) throws(StoreOpenError) -> DataDirectory {
        do throws(DataDirectoryError) {
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
