import ArgumentParser
import FoundationEssentials
import Logging
import Operations
import Settings

/// The options for settings; they override the environment, and the environment overrides the file.
struct ConfigurationOptions: ParsableArguments {
    @Option(name: .long, help: ArgumentHelp("Read settings from this YAML file.", valueName: "file"))
    var config: String?

    @Option(
        name: .long,
        help: ArgumentHelp(
            "Keep the database in this folder. (default: \(Setting.dataDirectory.plainDefault))", valueName: "directory"
        )
    )
    var dataDirectory: String?

    @Option(
        name: .long,
        help: ArgumentHelp(
            "Log from this level on: \(Setting.logLevel.allowed). (default: \(Setting.logLevel.plainDefault))",
            valueName: "level"
        )
    )
    var logLevel: String?

    /// Reads the settings, with the options among them.
    ///
    /// - Parameter listen: The addresses of the command line; if empty, the environment or the file decides.
    func loader(listen: [String] = []) -> SettingsLoader {
        var loader = SettingsLoader(environment: ProcessInfo.processInfo.environment, filePath: config)
        if !listen.isEmpty { loader.flags[Setting.listen.key] = listen }
        if let dataDirectory { loader.flags[Setting.dataDirectory.key] = [dataDirectory] }
        if let logLevel { loader.flags[Setting.logLevel.key] = [logLevel] }
        return loader
    }

    /// Loads the settings in effect; on an error, prints it and ends the command with status 1.
    func load(listen: [String] = []) throws -> Settings {
        do throws(SettingsError) {
            return try loader(listen: listen).load()
        } catch {
            for other in error.each.dropLast() { StandardError.print("\(other)") }
            throw fault("\(error.each.last ?? error)")
        }
    }

    /// Prints an error, and returns the exit status 1, to be thrown.
    ///
    /// Names the installed settings file if that was probably forgotten.
    func fault(_ text: String) -> ExitCode {
        StandardError.print(text)
        noteForgottenFile()
        return ExitCode.failure
    }

    /// Names the installed settings file if it was probably forgotten.
    func noteForgottenFile() {
        guard let file = loader().forgottenFile else { return }
        StandardError.print("no settings file was named; that of the installed server is meant with --config \(file)")
    }
}
