import ArgumentParser
import Glibc
import Operations
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
              token-cache serve --listen 0.0.0.0:8080 --data-directory /var/lib/token-cache
              token-cache serve --config /etc/token-cache/token-cache.yaml
              token-cache check-config --config /etc/token-cache/token-cache.yaml
              # Anybody who knows an id can read and replace its token: create ids with openssl rand -hex 16
              curl -d unique_id=9f8a4c1e7b3d60528cd1e5f27a94b306 -d token_info=hello http://127.0.0.1:8080/token
              curl 'http://127.0.0.1:8080/token?unique_id=9f8a4c1e7b3d60528cd1e5f27a94b306'
            """,
        version: Version.text,
        subcommands: [
            Serve.self, CheckConfig.self, Health.self, Reload.self, Drain.self, Diagnose.self, DescribeSettings.self,
        ],
        groupedSubcommands: [
            CommandGroup(name: "Audit log", subcommands: [AuditCommand.self]),
            CommandGroup(name: "Tokens", subcommands: [Get.self, Put.self, Delete.self, List.self]),
            CommandGroup(name: "Access", subcommands: [Access.self, Erase.self]),
            CommandGroup(
                name: "Store",
                subcommands: [
                    Stats.self, Verify.self, Backup.self, Restore.self, Keys.self, Rekey.self, Copy.self, Import.self,
                    Export.self, Migrate.self,
                ]
            ),
        ]
    )

    /// On the main thread until it is certain that there can be others: asynchronous code needs them, and would wait for them without
    /// a word.
    @MainActor static func main() async {
        // Before any file is opened.
        StandardOutput.reserve()
        do throws(ThreadShortage) {
            try NamedThread.start("first") {}
        } catch {
            StandardError.print("\(error)")
            _exit(EXIT_FAILURE)
        }
        // Not exit(3): the exit handlers of OpenSSL and Kerberos free memory that a thread may still need to connect to a database.
        _exit(await status())
    }

    /// Runs the command that the arguments name, and returns the exit status.
    private static func status() async -> Int32 {
        guard let arguments = ProcessArguments.own else {
            StandardError.print(
                "/proc is not mounted here, as in some chroots; mount it first: mount -t proc proc /proc")
            return ExitCode.failure.rawValue
        }
        // Otherwise the help of all commands would be shown without a word about the one that is missing.
        if arguments.first == "help", let message = CommandSuggestion.message(arguments) {
            StandardError.print(message)
            return ExitCode.validationFailure.rawValue
        }
        do {
            var command = try await asyncParseAsRoot(arguments)
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
            return ExitCode.success.rawValue
        } catch {
            let (code, text) = (exitCode(for: error), fullMessage(for: error))
            guard !text.isEmpty else { return code.rawValue }
            if code.isSuccess {
                // Such as the help that was asked for.
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
