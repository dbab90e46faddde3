internal import FoundationEssentials
internal import Glibc
package import Logging
package import SQLiteStore
internal import Server
package import Settings
internal import System
package import TokenStore

/// The store that the settings describe, for the command line: a running server's, or opened here when none runs.
package enum StoreAccess: Sendable {
    case running(ControlAccess)
    case own(SQLiteTokenStore, StoreAdministrator)

    /// A running server and how it is reached.
    package struct ControlAccess: Sendable {
        let client: ServerClient
        let path: String
        let processID: Int?
    }

    /// Why something that was asked for has not been done; says what to do about it.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        package init(_ description: String) {
            self.description = description
        }

        /// Of a store that does not open for a command: the server's user has its rights already.
        fileprivate init(_ error: StoreOpenError) {
            let advice = "run this as root or as the server's user"
            switch error {
            case .directory(.unusable(let path, let call, let code)) where Self.isRefusal(code):
                description = """
                    the data directory \(path) is not for this user (\(call): \(Self.text(code))); \(advice), \
                    or name another one with --data-directory
                    """
            case .keyRing(.file(let path, let call, let code)) where Self.isRefusal(code):
                description = "the key ring \(path) is not for this user (\(call): \(Self.text(code))); \(advice)"
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

    /// Finds the store.
    ///
    /// - Parameters:
    ///   - settings: Name its folder, and how it is sealed.
    ///   - creates: Whether a store is made when there is none.
    ///   - logger: For what the store has to tell.
    package static func open(_ settings: Settings, creates: Bool, logger: Logger) throws(Failure) -> StoreAccess {
        let directory = directory(settings)
        let database = directory + "/" + SQLiteTokenStore.fileName
        // What may not be looked at is told of when it is opened.
        let isThere = unsafe access(database, F_OK) == 0
        guard creates || isThere || (errno != ENOENT && errno != ENOTDIR) else {
            throw Failure("\(StoreOpenError.missing(path: database))")
        }
        do throws(StartError) {
            let store = try open(settings, logger: logger)
            return .own(store, StoreAdministrator(store))
        } catch {
            guard case .store(let error) = error else { throw Failure("\(error)") }
            guard case .directory(.inUse(_, let processID)) = error else { throw Failure(error) }
            let path = ControlSocketAddress.path(in: directory)
            let client = ServerClient(place: .unix(path: path))
            return .running(ControlAccess(client: client, path: path, processID: processID))
        }
    }

    /// Has a request carried out.
    package func perform<Request: StoreRequest>(
        _ request: Request, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void = { _ in }
    ) async throws(Failure) -> Request.Reply {
        switch self {
        case .own(_, let administrator):
            do throws(StoreError) {
                return try await request.answer(administrator, progress)
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
                case .noAnswer, .unreadable: throw Failure("\(process) went away before it had answered; try again")
                case .unreachable(let reason, _):
                    throw Failure(
                        """
                        the store is in use by \(process), which cannot be asked over \(access.path) (\(reason)); \
                        run this as the server's user, or stop the server first
                        """
                    )
                }
            }
        }
    }

    /// The most bytes that a request may take, of those that say how many they take; nil for any number.
    package var requestLimit: Int? {
        switch self {
        case .own: nil
        // Without what stands around the tokens.
        case .running: ControlSocketAddress.bodyLimit - 1_024
        }
    }

    /// Closes a store that was opened here.
    package func close() {
        if case .own(let store, _) = self { store.close() }
    }

    // MARK: - Replacing

    /// Puts a backup in the place of the store; refused while a server runs.
    package static func restore(
        _ settings: Settings, from path: String, logger: Logger,
        _ progress: (StoreAdministrator.Progress) -> Void
    ) throws(Failure) -> StoreReplacement.Outcome {
        try replace(settings, logger) { (replacement) throws(StoreError) in try replacement.restore(path, progress) }
    }

    /// Seals the store or puts it in the clear; refused while a server runs.
    package static func convert(
        _ settings: Settings, isSealed: Bool, logger: Logger,
        _ progress: (StoreAdministrator.Progress) -> Void
    ) throws(Failure) -> StoreReplacement.Outcome {
        try replace(settings, logger) { (replacement) throws(StoreError) in
            try replacement.convert(isSealed: isSealed, progress)
        }
    }

    private static func replace(
        _ settings: Settings, _ logger: Logger,
        _ body: (borrowing StoreReplacement) throws(StoreError) -> StoreReplacement.Outcome
    ) throws(Failure) -> StoreReplacement.Outcome {
        do {
            let directory = try DataDirectory(path: directory(settings), creates: true)
            defer { directory.unlock() }
            let replacement = try StoreReplacement(in: directory, options: options(settings)) { event in
                logger.log(level: event.severity.level, "\(event)")
            }
            return try body(replacement)
        } catch let error as DataDirectoryError {
            throw Failure(.directory(error))
        } catch let error as SQLiteOpenError {
            throw Failure(error.shared)
        } catch {
            throw Failure("\(error)")
        }
    }

    // MARK: - Settings

    /// The data directory's path in full, so that messages tell where it is whatever folder the program was started in.
    package static func directory(_ settings: Settings) -> String {
        settings.dataDirectoryPath
    }

    package static func options(_ settings: Settings) -> StoreOptions {
        var options = StoreOptions(
            keyRing: KeyRingFile(
                path: settings.sealing.keyRing,
                credentials: ProcessInfo.processInfo.environment["CREDENTIALS_DIRECTORY"],
                directory: directory(settings)
            )
        )
        options.isSealed = settings.sealing.isEnabled
        options.retention = settings.retention
        options.tokenLimit = settings.store.tokenLimit
        options.byteLimit = settings.store.byteLimit
        options.queueLimit = settings.store.queueLimit
        options.queueTime = settings.store.queueTime
        options.acceptsDamagedLog = settings.store.acceptsDamagedWAL
        return options
    }

    /// Opens the store in this process.
    ///
    /// - Parameters:
    ///   - settings: Name its folder, and how it is sealed.
    ///   - logger: For what the store has to tell.
    ///   - note: Told the same.
    static func open(
        _ settings: Settings, logger: Logger, noting note: @escaping @Sendable (StoreEvent) -> Void = { _ in }
    ) throws(StartError) -> SQLiteTokenStore {
        let folder: DataDirectory
        do throws(DataDirectoryError) {
            folder = try DataDirectory(path: directory(settings), creates: true)
        } catch {
            throw .store(.directory(error))
        }
        do throws(SQLiteOpenError) {
            return try SQLiteTokenStore(in: folder, options: options(settings)) { event in
                logger.log(level: event.severity.level, "\(event)")
                note(event)
            }
        } catch {
            throw .store(error.shared)
        }
    }
}

extension StoreEvent.Severity {
    package var level: Logger.Level {
        switch self {
        case .fault: .error
        case .warning: .warning
        case .note: .notice
        case .detail: .info
        case .trace: .debug
        }
    }
}
