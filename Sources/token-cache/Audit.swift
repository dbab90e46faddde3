import ArgumentParser
import Audit
import Cryptography
import Glibc
import Operations
import Settings
import System
import TokenStore

/// The command `token-cache audit`.
struct AuditCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit",
        abstract: "Make the keys of the audit log, and verify it.",
        discussion: """
            EXAMPLES
              token-cache audit key first.key
              token-cache audit verify audit.ndjson.1 audit.ndjson --key first.key
              zcat audit.ndjson.2.gz | token-cache audit verify - --key first.key
              token-cache audit pseudonym - --key first.key < user.txt
            """,
        subcommands: [AuditKey.self, AuditVerify.self, AuditPseudonymOf.self]
    )
}

/// The command `token-cache audit key`.
struct AuditKey: ConfiguredCommand {
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
        guard replace || !FileStatus.exists(path) else { throw AuditError.runningKeyExists(path: path) }
        guard !replace || FileStatus.exists(path) else {
            throw CommandFailure("there is no running key \(path) to replace; name the server's settings by --config")
        }
        let log = settings.audit.file
        guard !replace || FileStatus.size(of: log) == 0 else {
            throw CommandFailure(
                "move \(log) and its earlier files away first; the running key is needed to continue the log")
        }
        // A running server has its key in memory and would write it back, even if the file was removed.
        let hasLog = replace || FileStatus.size(of: log) > 0
        let lock = hasLog ? try DataDirectory(path: settings.dataDirectoryPath, creates: true) : nil
        defer { withExtendedLifetime(lock) {} }
        try Folder.create(Path.folder(of: path))
        let first = AuditFirstKey.random()
        try first.save(to: file)
        do {
            // Saving the running key would overwrite or delete a first key at one of these paths.
            guard ![path, RunningKey.headPath(beside: path)].contains(where: { FileIdentity.areSame(file, $0) }) else {
                throw CommandFailure("\(file) belongs to the running key; name another file for the first key")
            }
            try RunningKey(first, at: Int64(time(nil))).install(path)
        } catch {
            // Without a running key, the first key would verify nothing.
            _ = unsafe unlink(file)
            throw error
        }
        try StandardOutput.print(
            """
            \(file) has the first key: move it to where the log will be verified, and leave no copy here
            \(path) has the running key of the server\(log.isEmpty ? "; set audit.file to begin" : "")
            """
        )
    }
}

/// The command `token-cache audit verify`.
struct AuditVerify: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify", abstract: "Verify the audit log, and name the first line that was changed or removed.",
        discussion: """
            Needs no server and no settings: copy the log and verify it elsewhere. The exit status is 0 if all lines are as \
            they were written, 1 if not, and 2 if that cannot be told, because a file cannot be read or the head is before the \
            first line.

            Lines that were cut off at the end leave no trace in the file itself: give the head that the metrics have shown.
            """
    )

    @Argument(
        help: "The files in the order in which they were written, the earliest first; - for standard input.",
        completion: .file())
    var files: [String]

    @Option(help: ArgumentHelp("The file with the first key.", valueName: "file"), completion: .file())
    var key: String

    @Option(
        help: ArgumentHelp(
            """
            The values of token_cache_audit_sequence and token_cache_audit_head at one time: the line has to be there, \
            with this MAC.
            """, valueName: "sequence:head"
        )
    )
    var head: HeadArgument?

    @OptionGroup var output: OutputOptions

    func run() async throws {
        let found: AuditVerification
        do {
            var verifier = try AuditVerifier(AuditFirstKey(contentsOf: key), head: head?.head)
            for file in files { try verifier.read(file == "-" ? "/dev/stdin" : file) }
            found = try verifier.finish()
        } catch {
            StandardError.print("\(error)")
            throw ExitCode(2)
        }
        try output.print(Report(found), Self.text(found))
        if !found.isSound { throw ExitCode.failure }
    }

    private static func text(_ found: AuditVerification) -> String {
        var lines = found.gaps.map { Text.visible("\($0)") }
        if let fault = found.fault { lines.append(Text.visible("\(fault)")) }
        if let range = found.lines {
            let which = "lines \(range.lowerBound) to \(range.upperBound)"
            let time = Text.visible(found.lastTime)
            lines.append(
                found.isSound
                    ? "\(which) are as they were written, the last at \(time); its head is \(found.headNumber)"
                    : """
                    the log was altered; \(which), up to \(time), were verified\(found.fault == nil ? "" : " before the first fault")
                    """)
            if range.lowerBound > 1 { lines.append("lines before \(range.lowerBound) are in earlier files") }
        } else if found.isSound {
            lines.append("there are no lines")
        }
        return lines.joined(separator: "\n")
    }

    /// What was found, as JSON.
    private struct Report: Encodable {
        struct Fault: Encodable {
            let file: String
            let line: Int
            let text: String
        }

        let isSound: Bool
        let first: UInt64?
        let last: UInt64?
        let lastTime: String
        let head: UInt64
        let gaps: [Fault]
        let fault: Fault?

        init(_ found: AuditVerification) {
            isSound = found.isSound
            (first, last) = (found.lines?.lowerBound, found.lines?.upperBound)
            (lastTime, head) = (found.lastTime, found.headNumber)
            gaps = found.gaps.map { Fault(file: $0.file, line: $0.line, text: "\($0)") }
            fault = found.fault.map { Fault(file: $0.file, line: $0.line, text: "\($0)") }
        }

        private enum CodingKeys: String, CodingKey {
            case isSound = "sound"
            case first, last, lastTime, head, gaps, fault
        }
    }
}

/// A head as an argument: `1234:98765432109876`.
struct HeadArgument: ExpressibleByArgument {
    let head: AuditVerifier.Head

    init?(argument: String) {
        let parts = argument.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, let sequence = UInt64(parts[0]), let number = UInt64(parts[1]) else { return nil }
        head = AuditVerifier.Head(sequence: sequence, number: number)
    }
}

/// The command `token-cache audit pseudonym`.
struct AuditPseudonymOf: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pseudonym", abstract: "Print the pseudonym of a user or a session in the audit log."
    )

    @Argument(help: "The user, or with --session the session's id; - for standard input, which no process list shows.")
    var identifier: String

    @Flag(help: "The identifier is the public id of a session.")
    var session = false

    @Option(help: ArgumentHelp("The file with the first key.", valueName: "file"), completion: .file())
    var key: String

    func run() async throws {
        let text = try StandardInput.text(identifier, of: "the identifier")
        var bytes = Array(text.utf8)
        if session {
            guard let id = Base64URL.decode(bytes.span), id.count == 16 else {
                throw CommandFailure(
                    "\(Text.visible(text)) is no session's id, which has 22 letters, digits, - and _")
            }
            bytes = id
        }
        let hasher = try AuditHasher(AuditFirstKey(contentsOf: key).pseudonymKey())
        try StandardOutput.print(hasher.pseudonym(session ? .session : .user, of: bytes.span).text)
    }
}
