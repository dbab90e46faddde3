import ArgumentParser
import Glibc
import Operations
import Server
import Settings
import System

/// The command `token-cache serve`.
struct Serve: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serve requests until SIGTERM or SIGINT.",
        discussion: """
            Flags override the environment (limits.body is TOKEN_CACHE_LIMITS_BODY), the environment overrides the file, \
            and the file overrides the defaults. token-cache check-config shows all settings.

            If tokens.db or tokens.db-wal is moved, removed, cut or replaced while the server runs, it ends with status 74, and \
            should be started again, as the systemd unit does.

            EXAMPLES
              token-cache serve
              token-cache serve --listen 127.0.0.1:8080 --listen '[::1]:8080'
              token-cache serve --config token-cache.yaml --log-level debug
            """
    )

    @OptionGroup var serving: ServingOptions
    @OptionGroup var configuration: ConfigurationOptions

    @Flag(
        help: "Start even if the end of tokens.db-wal is damaged; its tokens are lost, and a copy of the WAL is kept.")
    var acceptDamagedWal = false

    func run() async throws {
        let loader = configuration.loader(serving)
        var loaded = try configuration.loadWithOrigins(loader)
        guard !acceptDamagedWal || loaded.settings.store.url.isEmpty else {
            throw CommandFailure(
                """
                --accept-damaged-wal is for SQLite, and store.url is set: that database recovers its WAL by itself; if PostgreSQL \
                cannot start, promote a standby or restore a backup, with pgBackRest for example
                """
            )
        }
        loaded.settings.store.acceptsDamagedWAL = acceptDamagedWal
        let log = LogOutput(level: loaded.settings.logLevel, format: loaded.settings.logFormat)
        let server = try ServerProcess(loaded, from: loader, log: log, version: Version.text)
        let status = try await server.run()
        if status != 0 { throw ExitCode(status) }
    }
}

/// The command `token-cache check-config`.
struct CheckConfig: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "check-config",
        abstract:
            "Before a start or a reload: check the settings and the files that they name, and print the settings.",
        discussion: """
            It refuses what serve refuses, including certificates, keys and folders that are missing or that the server's \
            user cannot use, and addresses that are named twice or that this machine does not have; only a start shows that \
            another program uses an address, or that it needs a privilege. token-cache doctor also checks the store.

            It has only the rights of the user who runs it, so run it as the server's user. With --json it also describes each \
            setting.

            EXAMPLES
              token-cache check-config --config token-cache.yaml
              token-cache check-config --config token-cache.yaml --syntax-only
            """
    )

    @OptionGroup var serving: ServingOptions
    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Do not look at the files and addresses that the settings name, which may be those of another machine.")
    var syntaxOnly = false

    func run() async throws {
        let settings = try configuration.load(serving)
        for remark in try StartCheck.check(settings, isSyntaxOnly: syntaxOnly) { StandardError.print(remark) }
        try output.print(Setting.all.map { Description($0, settings) }, settings.listing)
    }

    /// A setting with `--json`; the manual page is made of these.
    private struct Description: Encodable {
        let key: String
        let option: String?
        let variable: String
        let value: String
        let `default`: String
        let allowed: String
        /// Whether a reload applies a changed value.
        let reload: Bool
        let purpose: String

        init(_ setting: Setting, _ settings: Settings) {
            (key, option, variable) = (setting.key, setting.option, setting.environmentName)
            (value, `default`, allowed) = (setting.show(settings), setting.default, setting.allowed)
            (reload, purpose) = (setting.effect != .atStart, setting.paragraphs[0])
        }
    }
}

/// The command `token-cache health`.
struct Health: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "health",
        abstract: "For probes and scripts: ask the running server whether it is ready.",
        discussion: """
            The exit status is 0 if the server is ready, otherwise 1. The command asks over control.sock in the data folder, and \
            must run as the server's user or root; others can ask admin.listen: curl -f http://127.0.0.1:9090/readyz

            EXAMPLES
              token-cache health
              token-cache health --config /etc/token-cache/token-cache.yaml --json
            """
    )

    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let readiness = ServerControl.readiness(try configuration.loadPlace())
        try output.print(
            readiness, readiness.isReady ? "ready" : "not ready: \(readiness.reasons.joined(separator: "; "))"
        )
        guard readiness.isReady else {
            configuration.noteForgottenFile()
            throw ExitCode.failure
        }
    }
}

/// The command `token-cache reload`.
struct Reload: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "reload",
        abstract: "Make the running server read its settings again, and print the result.",
        discussion: """
            Works as SIGHUP does, and waits for the result. The command reaches the server over control.sock in its data \
            folder, and must run as the server's user or root. The exit status is 1 if a setting, a certificate or the file of the \
            access log is wrong; then nothing has changed. A fault of the audit log's new file or of a file of keys is only \
            reported, and the former file or keys stay in use.

            EXAMPLES
              token-cache reload
              token-cache reload --config /etc/token-cache/token-cache.yaml
            """
    )

    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let outcome = try ServerControl.reload(try configuration.loadPlace())
        try output.print(outcome, outcome.isReloaded ? "reloaded: \(outcome.outcome)" : outcome.outcome)
        if !outcome.isReloaded { throw ExitCode.failure }
    }
}
