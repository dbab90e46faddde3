internal import EventLoop
internal import FoundationEssentials
package import Server
package import Settings
internal import System
internal import TokenStore

/// Finds what would make a start fail in the settings and the files that they name, without starting or changing anything.
///
/// What may differ at the time of the start is left to the doctor: who uses an address or the data folder, and the store's files.
package enum StartCheck {
    /// - Parameters:
    ///   - settings: Those of the server.
    ///   - user: The server's user, if this process has that user's rights and systemd may do something for the service that
    ///     is not done yet; nil otherwise.
    ///   - isSyntaxOnly: Whether only the settings themselves are looked at, as on another machine.
    /// - Returns: The files that could not be looked at, because they are credentials of a service that does not run.
    package static func check(
        _ settings: Settings, for user: ServerUser?, isSyntaxOnly: Bool
    ) throws(StartError) -> [String] {
        do throws(StoreOpenError) {
            try StoreSelection.check(settings)
        } catch {
            throw .store(error)
        }
        guard !isSyntaxOnly else { return [] }
        let isAwaited: (String) -> Bool = { path in
            user.map { $0.awaitsFolder(of: path) || $0.awaitsCredential(path) } ?? false
        }
        try ClientListeners.examine(settings, except: isAwaited)
        do throws(StoreOpenError) {
            if !isAwaited(settings.dataDirectoryPath) { try DataDirectory.examine(settings) }
            if !isAwaited(StoreSelection.keyRing(settings).path) { try checkKeyRing(settings) }
        } catch {
            throw .store(error)
        }
        try Server.examineFiles(settings, except: isAwaited)
        guard let user, !settings.tls.certificates.isEmpty else { return [] }
        return Set(TLSFiles(settings).paths).filter(user.awaitsCredential).sorted()
    }

    private static func checkKeyRing(_ settings: Settings) throws(StoreOpenError) {
        guard settings.sealing.isEnabled else { return }
        let file = StoreSelection.keyRing(settings)
        do throws(KeyRingError) {
            guard try KeyRingExamination.examine(file) == nil else { return }
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
        do throws(DataDirectoryError) {
            try examine(settings.dataDirectoryPath)
        } catch {
            throw .directory(error)
        }
    }
}
