import EventLoop
import FoundationEssentials
package import Server
package import Settings
import System
import TokenStore

/// Finds what would make a start fail in the settings and the files that they name, without starting or changing anything.
///
/// Leaves to the start what may be different by then: who uses an address or the data folder, and the store's files.
package enum StartCheck {
    /// - Parameters:
    ///   - settings: Those of the server.
    ///   - isSyntaxOnly: Whether to check only the settings themselves, such as those for another machine.
    /// - Returns: Remarks: the files that were not checked, because systemd provides them as credentials only while the service
    ///   runs, and whose signatures are trusted; and warnings about certificates.
    package static func check(_ settings: Settings, isSyntaxOnly: Bool) throws(StartError) -> [String] {
        let (faults, remarks, warnings) = findings(settings, isSyntaxOnly: isSyntaxOnly)
        if let fault = faults.first { throw fault }
        return remarks + warnings
    }

    /// The faults, at most one of each kind of file, and the remarks and warnings of `check`.
    static func findings(
        _ settings: Settings, isSyntaxOnly: Bool = false
    ) -> (faults: [StartError], remarks: [String], warnings: [String]) {
        var faults: [StartError] = []
        @discardableResult
        func attempt<Value>(_ body: @autoclosure () throws(StartError) -> Value?) -> Value? {
            do {
                return try body()
            } catch {
                faults.append(error)
                return nil
            }
        }
        attempt(try StartError.opening(try StoreSelection.provider(settings)))
        guard !isSyntaxOnly else { return (faults, [], settings.warnings) }
        var credentials: Set<String> = []
        let isAwaited: (String) -> Bool = { path in
            if StoreCredential.isTransient(path) { credentials.insert(path) }
            return credentials.contains(path)
        }
        let certificates = attempt(try ClientListeners.examine(settings, except: isAwaited))
        if !isAwaited(settings.dataDirectoryPath) {
            attempt(try StartError.opening(try DataDirectory.examine(settings)))
        }
        // The key ring in a folder that cannot be used is not a second fault.
        if canUse(settings.dataDirectoryPath), !isAwaited(StoreSelection.keyRing(settings).path) {
            attempt(try StartError.opening(try checkKeyRing(settings)))
        }
        if !isAwaited(settings.refresh.clientSecretFile) {
            attempt(try StartError.opening(try StoreSelection.examineRefreshing(settings)))
        }
        let keys = attempt(try Server.examineFiles(settings, except: isAwaited))
        let remarks = credentials.sorted().map {
            "\($0) is a credential, which is there only while the service runs; it was not checked"
        }
        let warnings = settings.warnings + (certificates?.warnings ?? [])
        return (faults, remarks + [certificates?.trust, keys].compactMap(\.self), warnings)
    }

    /// Whether this user can use a data folder, or make it.
    static func canUse(_ directory: String) -> Bool { (try? DataDirectory.examine(directory)) != nil }

    private static func checkKeyRing(_ settings: Settings) throws(StoreOpenError) {
        let file = StoreSelection.keyRing(settings)
        do throws(KeyRingError) {
            guard try file.load() == nil else { return }
            // The start creates the data folder if it is missing, but no other folder.
            let folder = URL(filePath: Path.folder(of: file.path)).standardizedFileURL.path
            guard folder == settings.dataDirectoryPath || FileStatus(folder) != nil else {
                throw .noFolder(path: file.path)
            }
        } catch {
            throw .keyRing(error)
        }
    }
}

extension DataDirectory {
    fileprivate static func examine(_ settings: Settings) throws(StoreOpenError) {
        do {
            try examine(settings.dataDirectoryPath)
        } catch {
            throw .directory(error)
        }
    }
}

extension StartError {
    /// Returns what a closure does, and throws its error as one of a start.
    static func opening<Value>(
        _ body: @autoclosure () throws(StoreOpenError) -> Value
    ) throws(StartError) -> Value {
        do {
            return try body()
        } catch {
            throw .store(error)
        }
    }
}
