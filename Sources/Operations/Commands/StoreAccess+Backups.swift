internal import Server
package import Settings
package import TokenStore

extension StoreAccess {
    /// Verifies a backup in this process, whether or not a server runs.
    package static func verifyBackup(
        _ settings: Settings, at path: String, _ progress: (StoreProgress) -> Void
    ) throws(Failure) -> BackupVerification {
        let verifier = try backupVerifier(settings)
        do throws(StoreError) {
            return try verifier.verify(path, progress)
        } catch {
            throw Failure("\(error)")
        }
    }

    /// Takes a folder for backups that are named by their time.
    package static func backupFolder(_ settings: Settings, _ path: String) throws(Failure) -> BackupFolder {
        let verifier = try backupVerifier(settings)
        do throws(BackupFolder.Failure) {
            return try BackupFolder(path, verifier)
        } catch {
            throw Failure("\(error)")
        }
    }

    private static func backupVerifier(_ settings: Settings) throws(Failure) -> any BackupVerifier {
        do throws(StoreOpenError) {
            guard let verifier = try StoreSelection.provider(settings).backupVerifier else {
                throw .store(StoreFault(StoreCapability.backup.absence))
            }
            return verifier
        } catch {
            throw Failure("\(error)")
        }
    }
}
