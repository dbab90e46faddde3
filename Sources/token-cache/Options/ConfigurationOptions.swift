import ArgumentParser
import FoundationEssentials
import Logging
import Operations
import Settings

/// The flags that make the configuration; they come before the environment, and that before the file.
struct ConfigurationOptions: ParsableArguments {
    @Option(name: .long, help: ArgumentHelp("Read settings from this YAML file.", valueName: "file"))
    var config: String?

    @Option(
        name: .long,
        help: ArgumentHelp("Keep the database in this folder. (default: ./data)", valueName: "directory")
    )
    var dataDirectory: String?

    @Option(
        name: .long,
        help: ArgumentHelp(
            "Log from this level on: trace, debug, info, notice, warning, error, critical. (default: info)",
            valueName: "level"
        )
    )
    var logLevel: String?

    /// What reads the settings.
    ///
    /// - Parameters:
    ///   - listen: The addresses of the command line; empty leaves them to the other places.
    ///   - acceptsDamagedLog: Whether the command line accepts a damaged log; false leaves it to the other places.
    func loader(listen: [String] = [], acceptsDamagedLog: Bool = false) -> SettingsLoader {
        var loader = SettingsLoader(environment: ProcessInfo.processInfo.environment, filePath: config)
        if !listen.isEmpty { loader.flags["listen"] = listen }
        if let dataDirectory { loader.flags["data_directory"] = [dataDirectory] }
        if let logLevel { loader.flags["log_level"] = [logLevel] }
        if acceptsDamagedLog { loader.flags["store.accept_damaged_wal"] = ["on"] }
        return loader
    }

    /// The settings in effect, or the fault on standard error and the end with status 1.
    ///
    /// - Parameters: As of `loader`.
    func load(listen: [String] = [], acceptsDamagedLog: Bool = false) throws -> Settings {
        do throws(SettingsError) {
            return try loader(listen: listen, acceptsDamagedLog: acceptsDamagedLog).load()
        } catch {
            throw fault("\(error)")
        }
    }

    /// Prints what is wrong, for a person, and makes the command end with status 1.
    func fault(_ text: String) -> ExitCode {
        StandardError.tell(text)
        return ExitCode.failure
    }
}
