import ArgumentParser
import Operations
import Server
import Settings

/// The command `token-cache serve`.
struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
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

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions

    @Flag(
        help: "Start even if the end of tokens.db-wal is damaged; its tokens are lost, and a copy of the WAL is kept.")
    var acceptDamagedWal = false

    func run() async throws {
        var settings = try options.load(listen: addresses.listen)
        guard !acceptDamagedWal || settings.store.url.isEmpty else {
            throw options.fault(
                """
                --accept-damaged-wal is for SQLite, and store.url is set: that database recovers its WAL by itself; if PostgreSQL \
                cannot start, promote a standby or restore a backup, with pgBackRest for example
                """
            )
        }
        settings.store.acceptsDamagedWAL = acceptDamagedWal
        let log = LogOutput(level: settings.logLevel, format: settings.logFormat)
        let status: Int32
        do throws(StartError) {
            let server = try ServerProcess(
                settings, from: options.loader(listen: addresses.listen), log: log, version: Version.text)
            status = try await server.run()
        } catch {
            throw options.fault("\(error)")
        }
        if status != 0 { throw ExitCode(status) }
    }
}
