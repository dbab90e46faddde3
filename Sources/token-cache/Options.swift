import ArgumentParser
import Audit
import FoundationEssentials
import Glibc
import Logging
import Operations
import Server
import Settings
import System
import TokenStore

/// The options for settings; they override the environment, and the environment overrides the file.
struct ConfigurationOptions: ParsableArguments {
    @Option(name: .long, help: ArgumentHelp("Read settings from this YAML file.", valueName: "file"))
    var config: String?

    @Option(
        name: .long,
        help: ArgumentHelp(
            "The folder of the database. (default: \(Setting.dataDirectory.plainDefault))", valueName: "directory"
        )
    )
    var dataDirectory: String?

    /// Reads the settings, with the options among them.
    ///
    /// - Parameter serving: The options of commands that have these.
    func loader(_ serving: ServingOptions? = nil) -> SettingsLoader {
        var loader = SettingsLoader(environment: ProcessInfo.processInfo.environment, filePath: config)
        if let dataDirectory { loader.flags[Setting.dataDirectory.key] = [dataDirectory] }
        if let serving, !serving.listen.isEmpty { loader.flags[Setting.listen.key] = serving.listen }
        if let level = serving?.logLevel { loader.flags[Setting.logLevel.key] = [level] }
        return loader
    }

    /// Loads the settings in effect; on an error, prints it and ends the command with status 1.
    func load(_ serving: ServingOptions? = nil) throws -> Settings {
        try loadWithOrigins(loader(serving)).settings
    }

    /// Like `load`, for a command that only has to find the running server: other faults of the settings do not stop it, because they do
    /// not concern a server that runs, and a reload has to tell the server of them.
    func loadPlace() throws -> Settings { try loader().place ?? load() }

    /// Like `load`, and tells where each value comes from.
    func loadWithOrigins(_ loader: SettingsLoader) throws -> SettingsLoader.Loaded {
        do {
            return try loader.loadWithOrigins()
        } catch {
            for fault in error.each { StandardError.print(fault) }
            noteForgottenFile()
            throw ExitCode.failure
        }
    }

    /// Names the installed settings file if it was probably forgotten.
    func noteForgottenFile() {
        guard let file = loader().forgottenFile else { return }
        StandardError.print("no settings file was named; for that of the installed server, add --config \(file)")
    }
}

/// The options for settings that only a server has.
struct ServingOptions: ParsableArguments {
    @Option(
        name: .long,
        help: ArgumentHelp(
            "Listen on this address; may be repeated. (default: \(Setting.listen.plainDefault))", valueName: "address"
        )
    )
    var listen: [String] = []

    @Option(
        name: .long,
        help: ArgumentHelp(
            "Log from this level on: \(Setting.logLevel.allowed). (default: \(Setting.logLevel.plainDefault))",
            valueName: "level"
        )
    )
    var logLevel: String?
}

/// A command with settings: when it fails, the installed settings file is named if it was probably forgotten.
protocol ConfiguredCommand: AsyncParsableCommand {
    var configuration: ConfigurationOptions { get }
}

/// A command that works on the store.
protocol StoreCommand: ConfiguredCommand {
    var options: StoreCommandOptions { get }
}

extension StoreCommand {
    var configuration: ConfigurationOptions { options.configuration }
}

/// The flags of all commands that work on the store.
struct StoreCommandOptions: ParsableArguments {
    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func load() throws -> Settings {
        try configuration.load()
    }

    /// The log on standard error.
    var logger: Logger {
        // Only warnings and errors: the command prints its result itself.
        LogOutput(level: .warning, format: .text).logger
    }

    /// Opens the store, or connects to the server that uses it, for a command that sends several requests.
    ///
    /// - Parameters:
    ///   - action: That of the requests.
    ///   - creates: Whether to create a missing store.
    ///   - body: Works with the store.
    func withStore<Result: Sendable>(
        for action: AuditEvent.Action?, creates: Bool = false, _ body: (StoreAccess) async throws -> Result
    ) async throws -> Result {
        let settings = try load()
        if creates { configuration.noteForgottenFile() }
        let store = try StoreAccess.open(settings, for: action, creates: creates, logger: logger)
        defer { store.close() }
        return try await body(store)
    }

    /// Performs a single request.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - creates: As for `withStore`.
    ///   - title: That of a progress bar, for a request that takes long.
    func perform<Request: StoreRequest>(
        _ request: Request, creates: Bool = false, _ title: String? = nil
    ) async throws -> Request.Reply {
        try await withStore(for: request.action, creates: creates) { store in
            let bar = title.map(ProgressBar.init)
            defer { bar?.finish() }
            return try await store.perform(request) { bar?.show($0) }
        }
    }
}

/// Reads ids and token infos from standard input, so that they do not appear in the process list.
enum StandardInput {
    /// The text of an argument, or if that is `-`, all of standard input without the newline that `echo` adds.
    ///
    /// - Parameters:
    ///   - argument: The argument.
    ///   - what: Names the argument in error texts, such as `the id`.
    static func text(_ argument: String, of what: String) throws -> String {
        guard argument == "-" else { return argument }
        let bytes: [UInt8]
        do {
            bytes = try BlockingIO.read(from: STDIN_FILENO)
        } catch {
            // For example, it is closed or a folder.
            throw CommandFailure("\(what) cannot be read from standard input: \(error.reason)")
        }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw CommandFailure("\(what) from standard input is not UTF-8")
        }
        return text.unicodeScalars.last == "\n" ? withoutReturn(text.unicodeScalars.dropLast()) : text
    }

    /// The non-empty lines of a text.
    static func lines(_ text: String) -> [String] {
        // Split by scalars, because CR LF is a single Character, which differs from LF.
        text.unicodeScalars.split(separator: "\n").map(withoutReturn).filter { !$0.isEmpty }
    }

    /// The first line of a text, and the rest after it.
    static func firstLine(_ text: String) -> (line: String, rest: String) {
        let scalars = text.unicodeScalars
        guard let end = scalars.firstIndex(of: "\n") else { return (text, "") }
        return (withoutReturn(scalars[..<end]), String(scalars[scalars.index(after: end)...]))
    }

    private static func withoutReturn(_ line: Substring.UnicodeScalarView) -> String {
        String(line.last == "\r" ? line.dropLast() : line)
    }
}
