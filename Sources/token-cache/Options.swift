import ArgumentParser
import Audit
import FoundationEssentials
import Glibc
import Logging
import Operations
import Server
import Settings
internal import System
import TokenStore

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
        try loadWithOrigins(loader(listen: listen)).settings
    }

    /// Like `load`, and tells where each value comes from.
    func loadWithOrigins(_ loader: SettingsLoader) throws -> SettingsLoader.Loaded {
        do throws(SettingsError) {
            return try loader.loadWithOrigins()
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
        StandardError.print("no settings file was named; for that of the installed server, add --config \(file)")
    }
}

/// The option for the addresses of clients.
struct ListenOptions: ParsableArguments {
    @Option(
        name: .long,
        help: ArgumentHelp(
            "Listen on this address; may be repeated. (default: \(Setting.listen.plainDefault))", valueName: "address"
        )
    )
    var listen: [String] = []
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

    /// Opens the store, or connects to the server that uses it, for the duration of the body.
    ///
    /// - Parameters:
    ///   - action: What is about to be done, as the audit log calls it; nil if that is never recorded.
    ///   - creates: Whether to create a missing store.
    ///   - body: Works with the store.
    func withStore<Result: Sendable>(
        for action: AuditEvent.Action?, creates: Bool = false, _ body: (StoreAccess) async throws -> Result
    ) async throws -> Result {
        let settings = try load()
        if creates { configuration.noteForgottenFile() }
        do {
            let store = try StoreAccess.open(settings, for: action, creates: creates, logger: logger)
            defer { store.close() }
            return try await body(store)
        } catch let failure as CommandFailure {
            throw configuration.fault("\(failure)")
        }
    }

    /// Performs a request that takes long, with a progress bar.
    func perform<Request: StoreRequest>(
        _ request: Request, for action: AuditEvent.Action?, _ title: String
    ) async throws -> Request.Reply {
        try await withStore(for: action) { store in
            let bar = ProgressBar(title)
            defer { bar.finish() }
            return try await store.perform(request) { bar.show($0) }
        }
    }

    /// The text of an argument; `-` stands for standard input.
    ///
    /// - Parameters:
    ///   - argument: The argument.
    ///   - what: Names the argument in error texts, such as `the id`.
    func text(_ argument: String, of what: String) throws -> String {
        guard argument == "-" else { return argument }
        do throws(SystemError) {
            if let text = try StandardInput.text() { return text }
        } catch {
            throw configuration.fault("\(what) cannot be read from standard input: \(error.reason)")
        }
        throw configuration.fault("\(what) from standard input is not UTF-8")
    }
}

/// Reads ids and token infos from standard input, so that they do not appear in the process list.
enum StandardInput {
    /// The whole input as text, without the newline that `echo` adds; nil if it is not UTF-8.
    ///
    /// Throws if standard input cannot be read: for example, if it is closed or a folder.
    static func text() throws(SystemError) -> String? {
        guard let text = String(validating: try BlockingIO.read(from: STDIN_FILENO), as: UTF8.self) else { return nil }
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
