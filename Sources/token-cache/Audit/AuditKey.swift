import ArgumentParser
import Audit
import Cryptography
import Glibc
import Settings
import System
import TokenStore

/// The command `token-cache audit key`.
struct AuditKey: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "key", abstract: "Make the keys of a new audit log.",
        discussion: """
            Writes the first key to FILE, which verifies the log and could rewrite it: move FILE to where the log will be \
            verified, and leave no copy on the server. The running key is made at audit.key_file, for a server with the \
            same settings. Run this as the server's user or as root.
            """
    )

    @Argument(help: "The file for the first key; must not exist.", completion: .file())
    var file: String

    @Flag(
        help: """
            Replace the running key, and so end the log so far: its files have to be moved away. Only without a running \
            server.
            """
    )
    var replace = false

    @OptionGroup var configuration: ConfigurationOptions

    func run() async throws {
        let settings = try configuration.load()
        let path = settings.auditKeyPath
        do {
            let isThere = FileStatus.exists(path)
            guard replace || !isThere else { throw AuditError.runningKeyExists(path: path) }
            // A running server would put its own key back.
            let lock = isThere ? try DataDirectory(path: settings.dataDirectoryPath, creates: true) : nil
            defer { withExtendedLifetime(lock) {} }
            try Folder.create(Path.folder(of: path))
            let first = try AuditFirstKey.random()
            try first.save(to: file)
            do {
                try RunningKey(first, at: Int64(time(nil))).install(path)
            } catch {
                // It would verify nothing.
                _ = unsafe unlink(file)
                throw error
            }
        } catch {
            throw configuration.fault("\(error)")
        }
        try StandardOutput.print(
            """
            \(file) has the first key: move it to where the log will be verified, and leave no copy here
            \(path) has the running key of the server\(settings.audit.file.isEmpty ? "; set audit.file to begin" : "")
            """
        )
    }
}
