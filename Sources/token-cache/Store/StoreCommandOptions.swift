import ArgumentParser
import Audit
import Logging
import Operations
import Server
import Settings
import TokenStore

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
        do {
            let store = try StoreAccess.open(settings, for: action, creates: creates, logger: logger)
            defer { store.close() }
            return try await body(store)
        } catch let failure as StoreAccess.Failure {
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
        do throws(StandardInput.Failure) {
            if let text = try StandardInput.text() { return text }
        } catch {
            throw configuration.fault("\(what) cannot be read from standard input: \(error.reason)")
        }
        throw configuration.fault("\(what) from standard input is not UTF-8")
    }
}
