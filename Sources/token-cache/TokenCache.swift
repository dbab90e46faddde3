import ArgumentParser
import Glibc
import Operations
import Server
import Settings
import System

/// The `token-cache` command.
@main
struct TokenCache: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "token-cache",
        abstract: "Stores login tokens by unique id; replaces Facebook's sample token.php.",
        discussion: """
            EXAMPLES
              token-cache serve
              token-cache serve --config /etc/token-cache/token-cache.yaml
              token-cache check-config --config /etc/token-cache/token-cache.yaml
              # Whoever knows an ID can read and replace its token: make IDs with
              # openssl rand -hex 16
              curl http://127.0.0.1:8080/token -d unique_id=ID -d token_info=hello
              curl 'http://127.0.0.1:8080/token?unique_id=ID'
            """,
        version: Version.text,
        // Each command says its name, even if its type has the same: the parser derives a missing name by looking up protocols for each
        // type, which took a third of the instructions of a start.
        subcommands: [
            Serve.self, CheckConfig.self, Diagnose.self, Health.self, Reload.self,
        ],
        groupedSubcommands: [
            CommandGroup(name: "Audit log", subcommands: [AuditCommand.self]),
            CommandGroup(name: "Tokens", subcommands: [Get.self, Put.self, Delete.self, List.self]),
            CommandGroup(name: "Access", subcommands: [Access.self, Erase.self]),
            CommandGroup(
                name: "Store",
                subcommands: [
                    Stats.self, Verify.self, Backup.self, Restore.self, Keyring.self, Copy.self, Import.self,
                    Export.self,
                    Migrate.self,
                ]
            ),
        ]
    )

    /// Stays on the main thread until another one could be started: asynchronous code needs more threads, and would wait for them
    /// without a message.
    @MainActor static func main() async {
        // Commands have keys and tokens in memory, as the server does.
        CoreDumps.turnOff()
        // Before any file is opened.
        StandardOutput.reserve()
        // libdispatch, on which asynchronous code runs, opens files of its own, and crashes without a message if it cannot.
        guard DescriptorLimit.current >= 8 else {
            StandardError.print(
                "the limit of open files, \(DescriptorLimit.current), is too low to start; raise it with ulimit -n or LimitNOFILE="
            )
            _exit(EXIT_FAILURE)
        }
        do {
            try NamedThread.start("first") {}
        } catch {
            StandardError.print("\(error)")
            _exit(EXIT_FAILURE)
        }
        let status = await status()
        LogOutput.finish()
        // Not exit(3): the exit handlers of OpenSSL and Kerberos free memory that a thread may still need to connect to a database.
        _exit(status)
    }

    /// Runs the command that the arguments name, and returns the exit status.
    private static func status() async -> Int32 {
        // A server that had its arguments from elsewhere would not do either: libdispatch reads about its threads in /proc once
        // there is more work than cores, and ends the process if it cannot.
        guard let own = ProcessArguments.own else {
            StandardError.print(
                "/proc is not mounted here, as in some chroots; mount it first: mount -t proc proc /proc")
            return ExitCode.failure.rawValue
        }
        let arguments = own.compactMap(\.self)
        if let place = own.firstIndex(of: nil) {
            StandardError.print("argument \(place + 1) is not UTF-8, as all arguments have to be; nothing was done")
            return ExitCode.validationFailure.rawValue
        }
        // Otherwise the help of all commands would be shown, without a message about the unknown one.
        if arguments.first == "help", let message = CommandSuggestion.message(arguments) {
            StandardError.print(message)
            return ExitCode.validationFailure.rawValue
        }
        do {
            var command = try await asyncParseAsRoot(arguments)
            let configuration = (command as? any ConfiguredCommand)?.configuration
            do {
                if var command = command as? any AsyncParsableCommand {
                    try await command.run()
                } else {
                    try command.run()
                }
            } catch let error where !(error is ExitCode) && exitCode(for: error) == .failure {
                // Not help, which ArgumentParser's own command throws too.
                StandardError.print("\(error)")
                configuration?.noteForgottenFile()
                return ExitCode.failure.rawValue
            }
            return ExitCode.success.rawValue
        } catch {
            let (code, text) = (exitCode(for: error), fullMessage(for: error))
            guard !text.isEmpty else { return code.rawValue }
            if code.isSuccess {
                // Output that was asked for, such as help.
                do { try StandardOutput.print(text) } catch { return ExitCode.failure.rawValue }
            } else if code == .validationFailure, let message = CommandSuggestion.message(arguments) {
                StandardError.print(message)
            } else {
                StandardError.write(text + "\n")
            }
            return code.rawValue
        }
    }
}

/// Suggests a command in place of one that does not exist.
enum CommandSuggestion {
    /// Names that other programs have for commands of this one.
    private static let otherNames = [
        "start": "serve", "run": "serve", "rekey": "keyring rotate", "keys": "keyring",
        "status": "health", "check": "check-config",
        "set": "put", "store": "put", "remove": "delete", "rm": "delete", "ls": "list", "version": "--version",
    ]

    /// What other programs call the removal of a session or a key; the nearest name would be `add`.
    private static let endings = ["end", "delete", "revoke", "rm"]

    /// The message about the first word that is no command; nil if all of them are.
    ///
    /// - Parameter arguments: Without the program's name.
    static func message(_ arguments: [String]) -> String? {
        var command: any ParsableCommand.Type = TokenCache.self
        var path: [String] = []
        for word in arguments where !(path.isEmpty && word == "help") {
            let known =
                command.configuration.subcommands + command.configuration.groupedSubcommands.flatMap(\.subcommands)
            guard !known.isEmpty, !word.hasPrefix("-") else { return nil }
            if let next = known.first(where: { $0._commandName == word }) {
                command = next
                path.append(word)
                continue
            }
            let names = known.map { $0._commandName }
            let removal = endings.contains(word) && names.contains("remove") ? "remove" : nil
            let meant = (path.isEmpty ? otherNames[word] : removal) ?? Suggestion.nearest(to: word, among: names)
            // The word may be an argument of the default command, whose name can be left out.
            guard meant != nil || command.configuration.defaultSubcommand == nil else { return nil }
            let name = (path + [word]).joined(separator: " ")
            let suggestion = meant.map { "did you mean \((path + [$0]).joined(separator: " "))? " } ?? ""
            let help = (["token-cache"] + path + ["--help"]).joined(separator: " ")
            return "there is no command \(name); \(suggestion)\(help) shows all"
        }
        return nil
    }
}
