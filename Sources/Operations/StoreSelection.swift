internal import FoundationEssentials
internal import Logging
internal import SQLiteStore
internal import Server
internal import Settings
internal import TokenStore

/// Chooses the store; no other file knows which stores there are.
enum StoreSelection {
    /// The store that the settings describe.
    static func provider(_ settings: Settings) -> any StoreProvider {
        SQLiteStoreProvider(directory: settings.dataDirectoryPath, options: options(settings))
    }

    static func keyRing(_ settings: Settings) -> KeyRingFile {
        KeyRingFile(
            path: settings.sealing.keyRing,
            credentials: ProcessInfo.processInfo.environment["CREDENTIALS_DIRECTORY"],
            directory: settings.dataDirectoryPath
        )
    }

    private static func options(_ settings: Settings) -> StoreOptions {
        var options = StoreOptions(keyRing: keyRing(settings))
        options.isSealed = settings.sealing.isEnabled
        options.retention = settings.storeRetention
        options.tokenLimit = settings.store.tokenLimit
        options.byteLimit = settings.store.byteLimit
        options.queueLimit = settings.store.queueLimit
        options.queueTime = settings.store.queueTime
        options.acceptsDamagedWAL = settings.store.acceptsDamagedWAL
        return options
    }

    /// Locks the data folder and opens the store in this process.
    ///
    /// - Parameters:
    ///   - settings: Name the folder and the key ring.
    ///   - logger: Receives the store's events.
    ///   - observe: Receives the events as well.
    /// - Returns: The store, and the folder, which stays locked as long as it is referenced or until the store is closed.
    static func open(
        _ settings: Settings, logger: Logger, observe: @escaping @Sendable (StoreEvent) -> Void = { _ in }
    ) throws(StartError) -> (store: any TokenStore, directory: DataDirectory) {
        let provider = provider(settings)
        do throws(StoreOpenError) {
            guard provider.enforcesLimits || (settings.store.tokenLimit == nil && settings.store.byteLimit == nil)
            else {
                throw .store(StoreFault(StoreCapability.limits.absence))
            }
            let directory = try lock(settings)
            let store = try provider.open(in: directory) { event in
                logger.log(level: event.severity.level, "\(event)")
                observe(event)
            }
            return (store, directory)
        } catch {
            throw .store(error)
        }
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
    var level: Logger.Level {
        switch self {
        case .fault: .error
        case .warning: .warning
        case .note: .notice
        case .detail: .info
        case .trace: .debug
        }
    }
}
