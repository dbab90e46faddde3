import ArgumentParser
import FoundationEssentials
import Operations
import Settings
import TokenStore

/// The command `token-cache restore`.
struct Restore: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "restore",
        abstract: "Replace the store by a backup; the server must be stopped.",
        discussion: """
            The backup is checked first, and every row decrypted with the key ring. If the key ring lacks keys of it, nothing is \
            replaced. A row that does not open for another reason stays as it is, unless users were erased after it was written.

            Users that were erased after the backup was made are left out, if the file erasures is beside the key ring; tokens \
            that were stored for them later stay. All sessions end unless --keep-sessions is given, as some of the backup's may \
            have been revoked since.

            EXAMPLES
              token-cache restore /var/backups/tokens.db
            """
    )

    @Argument(help: "A file that token-cache backup has written.", completion: .file())
    var file: String

    @Flag(help: "Keep the backup's sessions, also those that were ended after it was made.")
    var keepSessions = false

    @Flag(
        help: "Restore although the key ring lacks keys; rows that need them stay, but for those older than an erasure."
    )
    var lacksKeys = false

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let settings = try options.load()
        let bar = ProgressBar("Checking")
        let outcome: StoreReplacement
        do {
            defer { bar.finish() }
            let path = URL(filePath: file).standardizedFileURL.path
            outcome = try await StoreAccess.restore(
                settings, from: path, keepsSessions: keepSessions, lacksKeys: lacksKeys, logger: options.logger
            ) { bar.show($0) }
        }
        var lines = ["restored \(Text.count(outcome.tokens, "token")), \(Text.bytes(outcome.bytes))"]
        if let count = outcome.replacedTokens {
            lines.append("replaced a store of \(Text.count(count, "token"))")
        }
        if let end = outcome.lostBefore {
            let start = outcome.lostAfter.map { "what was stored after \(Text.time($0))" } ?? "all that was stored"
            lines.append("lost \(start); the replaced store was last written before \(Text.time(end))")
        }
        if outcome.erasedUsers > 0 {
            lines.append("left out \(Text.count(outcome.erasedUsers, "user")) that had been erased")
        }
        if outcome.endedSessions > 0 {
            lines.append(
                "ended \(Text.count(outcome.endedSessions, "session")), as those that were revoked since cannot be told apart"
            )
        }
        if outcome.unreadable > 0 {
            lines.append(
                "\(Text.count(outcome.unreadable, "row")) cannot be opened and stayed as before; see token-cache verify"
            )
        }
        if outcome.omittedUnreadable > 0 {
            lines.append(
                """
                left out \(Text.count(outcome.omittedUnreadable, "row")) that cannot be opened and may be those of users who were erased since; \
                with their key in the key ring, restore the backup once more
                """)
        }
        if outcome.missingErasures > 0 {
            lines.append("\(StoreEvent.erasuresMissing(count: outcome.missingErasures))")
        }
        try options.output.print(outcome, lines.joined(separator: "\n"))
    }
}

/// The command `token-cache verify`.
struct Verify: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Check a store or a backup: that every token can be decrypted and, without a server, the structure.",
        discussion: """
            It repairs nothing, and does not change a backup. The exit status is 1 if something is wrong.

            The store is checked whether or not a server runs. A running server goes over all rows at once for this, also deletes what \
            has expired, and does not check the structure of the file. To check that, verify a backup.

            A backup is checked with the present key ring, as restore does.

            EXAMPLES
              token-cache verify
              token-cache verify /var/backups/tokens.db
              # With the copy of the key ring that is kept elsewhere
              export TOKEN_CACHE_SEALING_KEY_RING=/media/safe/keys-1-60b435c678147282
              token-cache verify /var/backups/tokens.db
            """
    )

    @Argument(help: "A file that token-cache backup has written. (default: the store)", completion: .file())
    var file: String?

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let isSound = if let file { try verifyBackup(file) } else { try await verifyStore() }
        if !isSound { throw ExitCode.failure }
    }

    private func verifyStore() async throws -> Bool {
        let found = try await options.perform(VerifyStore(), "Verifying")
        var lines = ["\(Text.count(found.tokens, "token")) checked"]
        lines += Self.faults(found.unreadable, found.unreadableRows ?? [], found.damages, found.missingErasures ?? 0)
        if let copy = found.damagedCopy {
            lines.append(
                "\(copy) is a copy of a damaged WAL, with tokens that the store may lack; remove it when you no longer need it"
            )
        }
        let last = found.lastWrittenAt.map { ", last written at \(Text.time($0))" } ?? ""
        lines.append(
            found.isSound
                ? "the store is sound\(last)"
                : found.damages.isEmpty
                    ? "the store is not sound: a new login replaces a row that does not open; see also token-cache restore"
                    : "the store is not sound; see token-cache restore"
        )
        try options.output.print(found, lines.joined(separator: "\n"))
        return found.isSound
    }

    private func verifyBackup(_ file: String) throws -> Bool {
        let path = URL(filePath: file).standardizedFileURL.path
        let found = try options.verifyBackup(try options.load(), at: path)
        let verdict =
            if found.isSound {
                "can be restored with this key ring"
            } else if found.damages.isEmpty && found.missingKeys.isEmpty {
                "can be restored with this key ring, but for the rows that do not open"
            } else {
                "cannot be restored as it is"
            }
        try options.output.print(found, (Self.findings(found) + ["\(path) \(verdict)"]).joined(separator: "\n"))
        return found.isSound
    }

    /// What was found in a backup, line by line.
    static func findings(_ found: BackupVerification) -> [String] {
        var contents = "\(Text.count(found.tokens, "token"))"
        if found.sessions > 0 { contents += " and \(Text.count(found.sessions, "session"))" }
        contents += " checked"
        if let time = found.lastWrittenAt { contents += ", the last stored at \(Text.time(time))" }
        return [contents] + faults(found.unreadable, found.unreadableRows, found.damages, found.missingErasures)
    }

    private static func faults(
        _ unreadable: [String: Int], _ rows: [String], _ damages: [String], _ missingErasures: Int
    ) -> [String] {
        var lines = unreadable.sorted { $0.key < $1.key }.map { "\(Text.count($0.value, "time")): \($0.key)" }
        let more = unreadable.values.reduce(0, +) > rows.count ? " and others" : ""
        if !rows.isEmpty { lines.append("not opened: \(rows.joined(separator: ", "))\(more)") }
        lines += damages.map { "damage: \($0)" }
        if missingErasures > 0 { lines.append("\(StoreEvent.erasuresMissing(count: missingErasures))") }
        return lines
    }
}

extension StoreCommandOptions {
    /// Verifies a backup, with a progress bar.
    func verifyBackup(_ settings: Settings, at path: String) throws -> BackupVerification {
        let bar = ProgressBar("Verifying")
        defer { bar.finish() }
        return try StoreAccess.verifyBackup(settings, at: path) { bar.show($0) }
    }
}
