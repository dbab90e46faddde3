internal import FoundationEssentials
internal import Glibc
package import Logging
package import Settings
internal import Synchronization
internal import System

/// Where the server's log goes and how: lines on standard error, from a level on, which may change while it runs.
///
/// Any thread.
package final class LogOutput: Sendable {
    private struct State {
        var level: Logger.Level
        var format: LogFormat
    }

    private let state: Mutex<State>

    package init(level: Logger.Level, format: LogFormat) {
        state = Mutex(State(level: level, format: format))
    }

    /// A logger that writes here, whose level is the one in force here.
    package var logger: Logger {
        Logger(label: "token-cache") { _ in Handler(output: self) }
    }

    /// Changes the level and the format of all lines from now on.
    package func set(level: Logger.Level, format: LogFormat) {
        state.withLock { $0 = State(level: level, format: format) }
    }

    /// For a `Logger`: its level cannot be set by itself, for it is the operator's choice for the whole program.
    private struct Handler: LogHandler {
        let output: LogOutput
        var metadata: Logger.Metadata = [:]

        var logLevel: Logger.Level {
            get { output.state.withLock(\.level) }
            nonmutating set { output.state.withLock { $0.level = newValue } }
        }

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let fields = metadata.merging(event.metadata ?? [:]) { _, newer in newer }
            let line = LogLine(
                unixMilliseconds: Int64(Date.now.timeIntervalSince1970 * 1_000), level: "\(event.level)",
                message: "\(event.message)", fields: fields.map { ($0, "\($1)") }.sorted { $0.0 < $1.0 }
            )
            // In one call if the system takes it all, so that lines of several threads do not mix. If it fails there is no
            // place to report it: nobody reads any more, or the disk is full.
            try? BlockingIO.write(Array(line.text(output.state.withLock(\.format)).utf8), to: STDERR_FILENO)
        }
    }
}
