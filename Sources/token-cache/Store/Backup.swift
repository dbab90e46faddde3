import ArgumentParser
import FoundationEssentials
import Operations
import Settings
import System
import TokenStore

/// The command `token-cache backup`.
struct Backup: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup",
        abstract: "Write a copy of the store to a file, or into a folder where earlier ones are rotated.",
        discussion: """
            The store may be in use. The copy is one file, checked and synced before it gets its name. It is sealed as the store \
            is, and useless without the key ring, which it does not contain: --keys also copies that, and the file erasures, without \
            which a restore brings erased users back. Keep these copies apart from the backups, as whoever has both can read the \
            tokens. A running server writes the files itself, so its user needs access to the folders.

            With --into, the file is named by the time (tokens-20261123T071500Z.db, in UTC), and every row is decrypted before \
            it gets this name; rows that do not open are named, and are in the backup as in the store. Then the backups that --keep \
            does not name are removed, and after that the command of --after runs. last=N keeps the last N, and hourly=N, daily=N \
            and weekly=N keep the last one of each of the last N hours, days and weeks that have one. Files with other names are \
            never removed. If only the removal fails, the backup counts and the exit status is 2.

            EXAMPLES
              token-cache backup /var/backups/tokens.db
              token-cache backup /var/backups/tokens.db --keys /media/safe
              token-cache backup --into /backups --keep hourly=24,daily=7,weekly=4
              token-cache backup --into /backups --after 'rclone copy "$BACKUP_FILE" b2:'
              token-cache verify /var/backups/tokens.db
            """
    )

    @Argument(help: "The file to write; an existing backup is replaced.", completion: .file())
    var file: String?

    @Option(
        help: ArgumentHelp("Write a file that is named by the time into this folder.", valueName: "folder"),
        completion: .directory)
    var into: String?

    @Option(
        help: ArgumentHelp(
            "Which backups of the folder to keep, such as hourly=24,daily=7,weekly=4. (default: all)", valueName: "rule"
        ),
        transform: BackupRetention.init(_:))
    var keep: BackupRetention?

    @Option(
        help: ArgumentHelp(
            """
            Then run this in a shell, with the backup's path as $BACKUP_FILE and $1, to copy it elsewhere. If the command \
            fails, so does this one, and the backup stays.
            """, valueName: "command"))
    var after: String?

    @Option(
        help: ArgumentHelp(
            "Also copy the key ring and the erasures into this folder, under names that begin with keys-.",
            valueName: "folder"),
        completion: .directory)
    var keys: String?

    @OptionGroup var options: StoreCommandOptions

    /// Words that look like subcommands: `token-cache backup restore` would look like a restore, and make a backup.
    private static let supposedCommands = ["create", "delete", "list", "remove", "restore", "show", "status", "verify"]

    func validate() throws {
        switch (file, into) {
        case (nil, nil): throw ValidationError("Missing expected argument: name a <file>, or a folder with --into.")
        case (.some, .some): throw ValidationError("A <file> and --into exclude each other.")
        case (let file?, nil) where Self.supposedCommands.contains(file):
            throw ValidationError(
                "there is no command backup \(file); token-cache --help shows all. For a file of that name, write ./\(file)."
            )
        case ("-", nil): throw ValidationError("A backup is a file, and cannot be written to standard output.")
        case (.some, nil) where keep != nil: throw ValidationError("--keep needs --into.")
        default: break
        }
    }

    func run() async throws {
        if let into {
            let folder = URL(filePath: into).standardizedFileURL.path
            // A timer's folder may not be there, as its disk was not mounted; a file is mostly named by hand.
            let failed = RecordBackup(isSuccessful: false)
            let failure = try await recorded(failed) { try await backUp(into: folder, noting: &$0) }
            guard let failure else { return }
            StandardError.print(
                "the backup is complete, but earlier ones were not all removed and go on filling the disk: \(failure)")
            throw Self.failedRemoval
        } else if let file {
            let path = URL(filePath: file).standardizedFileURL.path
            try await recorded { try await backUp(to: path, noting: &$0) }
        }
    }

    /// The exit status if the backup was made, but earlier ones could not be removed.
    private static let failedRemoval = ExitCode(2)

    /// Notes for the metrics whether the backup was verified and copied elsewhere.
    ///
    /// - Parameters:
    ///   - note: What is noted if the backup cannot even begin; nil for nothing.
    ///   - body: Sets the note as soon as the backup is written; the store itself notes earlier failures.
    private func recorded<Result>(
        _ note: RecordBackup? = nil, _ body: (inout RecordBackup?) async throws -> Result
    ) async throws -> Result {
        var note = note
        do {
            let result = try await body(&note)
            note?.isSuccessful = true
            await record(note)
            return result
        } catch {
            await record(note)
            throw error
        }
    }

    /// Reports no error: whatever keeps the store from being opened was reported before.
    private func record(_ note: RecordBackup?) async {
        guard let note, let settings = try? options.configuration.loader().load() else { return }
        guard let store = try? StoreAccess.open(settings, for: nil, creates: false, logger: options.logger) else {
            return
        }
        defer { store.close() }
        _ = try? await store.perform(note)
    }

    private func backUp(to path: String, noting note: inout RecordBackup?) async throws {
        let written = try await write(path)
        note = RecordBackup(isSuccessful: false)
        try copyElsewhere(path)
        let text = "\(written.path): \(Text.count(written.tokens, "token")), \(Text.bytes(written.bytes))"
        try options.output.print(written, text + Self.copies(written.keys))
    }

    private func write(_ path: String, isUnchecked: Bool? = nil) async throws -> StoreBackup {
        let keys = keys.map { URL(filePath: $0).standardizedFileURL.path }
        let request = BackUpStore(path: path, isUnchecked: isUnchecked, keys: keys)
        let written = try await options.perform(request, "Backing up")
        if keys != nil, written.keys == nil {
            throw CommandFailure("the running server is of version 1.0, and has written the backup but not the keys")
        }
        return written
    }

    private static func copies(_ paths: [String]?) -> String {
        paths.map { "\ncopied \($0.joined(separator: " and ")); keep them apart from the backups" } ?? ""
    }

    /// What is printed with `--json`.
    private struct Written: Encodable {
        var path: String
        var tokens: Int
        var sessions: Int
        var bytes: Int
        /// Rows that do not open.
        var unreadable: Int
        var removed: [String]
        var keys: [String]?
    }

    /// - Parameters:
    ///   - folderPath: The folder.
    ///   - note: Set when the backup is written, and its path when it has its name.
    /// - Returns: Why earlier backups could not be removed; nil if they could.
    private func backUp(into folderPath: String, noting note: inout RecordBackup?) async throws -> StoreError? {
        let settings = try options.load()
        // Locked until the end: another process's backup could otherwise remove the file while it is being copied.
        let folder = try StoreAccess.backupFolder(settings, folderPath)
        try folder.removeUnverified()
        let (found, keys) = try await writeVerified(settings, at: folder.unverified, noting: &note)
        let (time, path) = try folder.accept()
        note?.path = path
        // Before the copy, which may fail or never end: until copies succeed again, earlier backups would fill the disk.
        let (removed, failure) = keep.map { folder.removeSuperfluous($0, newest: time) } ?? ([], nil)
        do {
            try copyElsewhere(path)
        } catch {
            if let failure { StandardError.print("earlier backups were not all removed: \(failure)") }
            throw error
        }
        try show(found, path, removed, keys)
        return failure
    }

    private func show(_ found: BackupVerification, _ path: String, _ removed: [String], _ keys: [String]?) throws {
        var text = "\(path): \(Text.count(found.tokens, "token")), \(Text.bytes(found.bytes)), verified"
        if !removed.isEmpty { text += "\nremoved \(Text.count(removed.count, "earlier backup"))" }
        let result = Written(
            path: path, tokens: found.tokens, sessions: found.sessions, bytes: found.bytes,
            unreadable: found.unreadable.values.reduce(0, +), removed: removed, keys: keys)
        try options.output.print(result, text + Self.copies(keys))
    }

    /// Writes a backup and verifies it.
    private func writeVerified(
        _ settings: Settings, at unverified: String, noting note: inout RecordBackup?
    ) async throws -> (BackupVerification, keys: [String]?) {
        let written = try await write(unverified, isUnchecked: true)
        note = RecordBackup(isSuccessful: false)
        let found = try options.verifyBackup(settings, at: unverified)
        let reasons = Verify.findings(found).joined(separator: "; ")
        guard found.damages.isEmpty else {
            throw CommandFailure(
                """
                the backup cannot be restored (\(reasons)). It stays as \(unverified) until the next one, and earlier backups \
                stay as they are; token-cache verify tells whether the store itself is damaged
                """
            )
        }
        if !found.isSound {
            StandardError.print(
                "rows of the store do not open, and are in the backup as they are (\(reasons)); earlier ones may have them"
            )
        }
        return (found, written.keys)
    }

    /// Runs the operator's command.
    private func copyElsewhere(_ path: String) throws {
        guard let after, !after.isEmpty else { return }
        let reason: String
        do {
            switch try ShellCommand.run(after, with: "BACKUP_FILE", path) {
            case .exited(status: 0): return
            case .exited(let status): reason = "ended with status \(status)"
            case .killed(let signal): reason = "was killed by signal \(signal)"
            }
        } catch {
            reason = "cannot be run: \(error.reason)"
        }
        throw CommandFailure("the backup is written to \(path), but the command of --after \(reason)")
    }
}
