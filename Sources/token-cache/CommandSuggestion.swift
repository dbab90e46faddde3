import ArgumentParser
import Settings

/// Says of a command that does not exist which one may have been meant.
enum CommandSuggestion {
    /// Names that other programs have for commands of this one.
    private static let otherNames = [
        "start": "serve", "run": "serve", "stop": "drain", "restart": "systemctl restart token-cache",
        "status": "health", "check": "check-config",
        "set": "put", "store": "put", "remove": "delete", "rm": "delete", "ls": "list", "version": "--version",
    ]

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
            let meant = (path.isEmpty ? otherNames[word] : nil) ?? Suggestion.nearest(to: word, among: names)
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
