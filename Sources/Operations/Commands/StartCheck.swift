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
    ///   - isSyntaxOnly: Whether only the settings themselves are looked at, as on another machine.
    /// - Returns: Remarks: the files that were not checked, because systemd provides them as credentials only while the service
    ///   runs, and the authorities for clients' certificates.
    package static func check(
        _ settings: Settings, isSyntaxOnly: Bool
    ) throws(StartError) -> [String] {
        do throws(StoreOpenError) {
            try StoreSelection.check(settings)
        } catch {
            throw .store(error)
        }
        guard !isSyntaxOnly else { return [] }
        var credentials: Set<String> = []
        let isAwaited: (String) -> Bool = { path in
            if StoreCredential.isTransient(path) { credentials.insert(path) }
            return credentials.contains(path)
        }
        let authorities = try ClientListeners.examine(settings, except: isAwaited)
        do throws(StoreOpenError) {
            if !isAwaited(settings.dataDirectoryPath) { try DataDirectory.examine(settings) }
            if !isAwaited(StoreSelection.keyRing(settings).path) { try checkKeyRing(settings) }
        } catch {
            throw .store(error)
        }
        try Server.examineFiles(settings, except: isAwaited)
        return credentials.sorted().map {
            "\($0) is a credential, which is there only while the service runs; it was not checked"
        } + (authorities.map { [$0.trust] + $0.warnings() } ?? [])
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
