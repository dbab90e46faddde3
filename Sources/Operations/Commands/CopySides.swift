internal import Audit
internal import FoundationEssentials
package import Logging
package import Settings
internal import System
internal import TokenStore

/// A store that rows are copied from or to.
package enum CopyPlace: Equatable, Sendable {
    /// The absolute path of the data folder of a SQLite store.
    case folder(String)
    /// The URL of a store on PostgreSQL.
    case database(String)

    /// - Parameter text: A folder, or a URL that begins with `postgresql://` or `postgres://`.
    package init(_ text: String) {
        let isURL = ["postgresql://", "postgres://"].contains { text.hasPrefix($0) }
        self = isURL ? .database(text) : .folder(URL(filePath: text).standardizedFileURL.path)
    }

    var folder: String? {
        if case .folder(let path) = self { path } else { nil }
    }
}

extension StoreCopy {
    /// Opens both stores, with the same key ring.
    ///
    /// - Parameters:
    ///   - settings: Name the key ring, and how a database is used.
    ///   - from: The source; a server may be using it.
    ///   - to: The target; a data folder without a store gets one.
    ///   - logger: Receives the stores' events.
    package static func open(
        _ settings: Settings, from: CopyPlace, to: CopyPlace, logger: Logger
    ) throws(StoreAccess.Failure) -> StoreCopy {
        guard from != to else { throw StoreAccess.Failure("both are the same store") }
        var settings = settings
        if settings.sealing.isEnabled { settings.sealing.keyRing = try keyRing(settings, from, to) }
        let source = try opened("source", from, settings, logger)
        do throws(StoreAccess.Failure) {
            return StoreCopy(from: source, to: try opened("target", to, settings, logger))
        } catch {
            source.close()
            throw error
        }
    }

    private static func opened(
        _ name: String, _ place: CopyPlace, _ settings: Settings, _ logger: Logger
    ) throws(StoreAccess.Failure) -> StoreAccess {
        do throws(StoreAccess.Failure) {
            return try open(place, settings, creates: name == "target", logger)
        } catch {
            throw StoreAccess.Failure("the \(name): \(error)")
        }
    }

    /// The ring of the settings or, without one, that of a folder.
    private static func keyRing(
        _ settings: Settings, _ from: CopyPlace, _ to: CopyPlace
    ) throws(StoreAccess.Failure) -> String {
        let folders = [from.folder, to.folder, settings.dataDirectoryPath].compactMap(\.self)
        let candidates = folders.map { folder in
            var own = settings
            own.dataDirectory = folder
            return StoreSelection.keyRing(own)
        }
        // Those of the two stores, where they have one.
        let rings = candidates.prefix(folders.count - 1).compactMap { try? KeyRingExamination.examine($0)?.fingerprint }
        guard Set(rings).count <= 1 else { throw StoreAccess.Failure(Self.differentRings) }
        if let path = candidates.first(where: { FileStatus.exists($0.path) })?.path { return path }
        throw StoreAccess.Failure(
            """
            there is no key ring \(candidates[0].path), and rows are copied as they were sealed; name the file that both stores \
            use with sealing.key_ring
            """
        )
    }

    private static func open(
        _ place: CopyPlace, _ settings: Settings, creates: Bool, _ logger: Logger
    ) throws(StoreAccess.Failure) -> StoreAccess {
        var own = settings
        switch place {
        case .folder(let path):
            own.store.url = ""
            own.dataDirectory = path
            // The audit log that the settings name is about their own data folder, not about another one.
            if Path.resolved(path) != Path.resolved(settings.dataDirectoryPath) { own.audit.file = "" }
            return try StoreAccess.open(own, for: creates ? .copyTo : .copyFrom, creates: creates, logger: logger)
        case .database(let url):
            do throws(StoreURL.Fault) {
                _ = try StoreURL(url)
            } catch {
                throw StoreAccess.Failure("the URL \(error)")
            }
            own.store.url = url
            // Limits of a SQLite store.
            (own.store.tokenLimit, own.store.byteLimit) = (nil, nil)
            return try StoreAccess.openUnrecorded(own, logger: logger)
        }
    }
}
