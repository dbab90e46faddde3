import ArgumentParser
import FoundationEssentials
import Operations
import Settings
import TokenStore

/// The command `token-cache backup verify`.
struct BackupVerify: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Check that a backup could be restored; the exit status is 1 if not.",
        discussion: """
            Checks the file's structure and decrypts every row with the key ring that there is, as a restore does. Changes \
            nothing, and needs neither a server nor that it is stopped.

            EXAMPLES
              token-cache backup verify /var/backups/tokens.db
              # With the copy of the key ring that is kept elsewhere
              TOKEN_CACHE_SEALING_KEY_RING=/media/safe/keys-2026-11-23-0705 token-cache backup verify /var/backups/tokens.db
            """
    )

    @Argument(help: "A file that token-cache backup has written.", completion: .file())
    var file: String

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let path = URL(filePath: file).standardizedFileURL.path
        let found = try options.verifyBackup(try options.load(), at: path)
        var lines = Self.findings(found)
        lines.append(
            found.isSound ? "\(path) can be restored with this key ring" : "\(path) cannot be restored as it is")
        try options.output.print(found, lines.joined(separator: "\n"))
        if !found.isSound { throw ExitCode.failure }
    }

    /// What was found, line by line.
    static func findings(_ found: BackupVerification) -> [String] {
        var contents = "\(Text.count(found.tokens, "token"))"
        if found.sessions > 0 { contents += " and \(Text.count(found.sessions, "session"))" }
        if let time = found.lastWrittenAt {
            contents += " checked, the last stored at \(Text.time(time))"
        } else {
            contents += " checked"
        }
        return [contents]
            + found.unreadable.sorted { $0.key < $1.key }.map { "\(Text.count($0.value, "time")): \($0.key)" }
            + found.damages.map { "damage: \($0)" }
    }
}

extension StoreCommandOptions {
    /// Verifies a backup, with a progress bar; on an error, prints it and ends the command with status 1.
    func verifyBackup(_ settings: Settings, at path: String) throws -> BackupVerification {
        let bar = ProgressBar("Verifying")
        do throws(StoreAccess.Failure) {
            defer { bar.finish() }
            return try StoreAccess.verifyBackup(settings, at: path) { bar.show($0) }
        } catch {
            throw configuration.fault("\(error)")
        }
    }
}
