import Audit
import FoundationEssentials
package import Logging
import Server
package import Settings
import System
package import TokenStore

/// A store that rows are copied from or to, as the command line names it.
package enum CopyPlace: Equatable, Sendable {
    /// The path of a settings file, which names the store and its key ring.
    case settings(String)
    /// The absolute path of the data folder of a SQLite store.
    case folder(String)
    /// The URL of a store on PostgreSQL.
    case database(String)

    /// - Parameter text: A file, a folder, or a URL that begins with `postgresql://` or `postgres://`.
    package init(_ text: String) throws(CommandFailure) {
        if ["postgresql://", "postgres://"].contains(where: { text.hasPrefix($0) }) {
            self = .database(text)
            // A connection string, or a URL in another form: a folder of that name would be made, which contains the password.
        } else if text.contains(/^\w+ *=|^(?i:jdbc|postgres|postgresql):|:\/\/|:[^\/]*@/), !FileStatus.exists(text) {
            throw CommandFailure(
                "a database is named by a URL such as \(StoreURL.example); a folder of such a name is written as ./NAME"
            )
        } else {
            self =
                FileStatus(text)?.isFile == true
                ? .settings(text) : .folder(URL(filePath: text).standardizedFileURL.path)
        }
    }

    /// The settings with this place as their store.
    ///
    /// - Parameter other: The other store of the copy. If it is a folder, a database uses the key ring there, unless the one of the
    ///   settings exists.
    package func naming(in settings: Settings, beside other: CopyPlace) throws(CommandFailure) -> Settings {
        var own = settings
        switch self {
        case .settings: return settings
        case .folder(let path):
            own.store.url = ""
            own.dataDirectory = path
            // The audit log of the settings records only what happens to their own data folder.
            if Path.resolved(path) != Path.resolved(settings.dataDirectoryPath) { own.audit.file = "" }
        case .database(let url):
            do {
                _ = try StoreURL(url)
            } catch {
                throw CommandFailure("the URL \(error)")
            }
            own.store.url = url
            // It limits SQLite only.
            own.store.byteLimit = nil
            if case .folder(let path) = other, !FileStatus.exists(StoreSelection.keyRing(settings).path) {
                own.dataDirectory = path
            }
        }
        return own
    }
}

extension StoreAccess {
    /// Copies all rows of a store to another one.
    ///
    /// - Parameters:
    ///   - source: Name a folder that no server uses, or a database.
    ///   - target: Name a folder without a store, or a database with empty tables.
    ///   - skipsUnreadable: Whether rows that do not open are left out.
    ///   - logger: Receives the stores' events.
    ///   - progress: Called repeatedly.
    package static func copy(
        from source: Settings, to target: Settings, skipsUnreadable: Bool, logger: Logger,
        _ progress: @escaping (StoreCopy.Stage, StoreProgress) -> Void
    ) async throws -> CopySummary {
        func place(_ settings: Settings) -> String {
            settings.store.url.isEmpty ? Path.resolved(settings.dataDirectoryPath) : settings.store.url
        }
        guard place(source) != place(target) else { throw CommandFailure("both are the same store") }
        let from = try CopySide("source", source, .copyFrom, logger)
        defer { from.directory.unlock() }
        let to = try CopySide("target", target, .copyTo, logger)
        defer { to.directory.unlock() }
        return try await from.recording(
            try await to.recording(try copy(from, to, skipsUnreadable: skipsUnreadable, progress)))
    }

    private static func copy(
        _ from: CopySide, _ to: CopySide, skipsUnreadable: Bool,
        _ progress: @escaping (StoreCopy.Stage, StoreProgress) -> Void
    ) throws(StoreError) -> CopySummary {
        // The source may be an old backup, which still has users who were erased since.
        let erasures = try from.erasures() + to.erasures()
        let reader = try from.open { (store, folder) throws(StoreOpenError) in try store.copySource(in: folder) }
        let filler = try to.open { (store, folder) throws(StoreOpenError) in try store.copyTarget(in: folder) }
        return try StoreCopy(from: reader, to: filler, without: erasures, progress).run(
            skipsUnreadable: skipsUnreadable)
    }

    /// One of the two stores.
    private struct CopySide {
        /// Locked, if the store has its files there.
        let directory: DataDirectory
        private let name: String
        private let settings: Settings
        private let provider: any StoreProvider
        private let action: AuditEvent.Action
        private let logger: Logger

        init(
            _ name: String, _ settings: Settings, _ action: AuditEvent.Action, _ logger: Logger
        ) throws(CommandFailure) {
            (self.name, self.settings, self.action, self.logger) = (name, settings, action, logger)
            do {
                provider = try StoreSelection.provider(settings, logger, makesKeyRing: action != .copyFrom)
                if action == .copyFrom { try StoreAccess.refuseMissing(provider) }
                directory =
                    provider.isShared
                    ? DataDirectory(withoutLock: settings.dataDirectoryPath) : try StoreSelection.lock(settings)
            } catch {
                throw Self.failure(of: name, error)
            }
        }

        func open<Half>(
            _ body: (any StoreProvider, DataDirectory) throws(StoreOpenError) -> Half
        ) throws(StoreError) -> Half {
            do {
                return try body(provider, directory)
            } catch {
                throw .refused("\(Self.failure(of: name, error))")
            }
        }

        /// The erased users in the file `erasures` beside this side's key ring, or in its data folder.
        func erasures() throws(StoreError) -> [Erasures] {
            try ErasuresFile.load(followedByStoreWith: StoreSelection.keyRing(settings), in: directory.path)
        }

        /// Records the copy in the audit log of the data folder's server; nothing records copies from and to a database.
        func recording<Value>(
            _ body: @autoclosure () async throws(StoreError) -> Value
        ) async throws(StoreError) -> Value {
            guard !provider.isShared else { return try await body() }
            return try await StoreAccess.recording(action, settings, logger, try await body())
        }

        private static func failure(of name: String, _ error: StoreOpenError) -> CommandFailure {
            CommandFailure("the \(name): \(CommandFailure(error))")
        }
    }
}
