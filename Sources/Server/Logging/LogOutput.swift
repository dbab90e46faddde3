internal import FoundationEssentials
internal import Glibc
package import Logging
package import Settings
internal import Synchronization
internal import System

/// Writes the server's log to standard error, in a format and from a level on that can change at run time.
///
/// Any thread.
package final class LogOutput: Sendable {
    private struct State {
        var level: Logger.Level
        var format: LogFormat
    }

    private let state: Mutex<State>
    /// The last lines of level warning and up.
    package let recent = RecentLog()

    package init(level: Logger.Level, format: LogFormat) {
        state = Mutex(State(level: level, format: format))
    }

    /// A logger that writes to this output and follows its level.
    package var logger: Logger {
        Logger(label: "token-cache") { _ in Handler(output: self) }
    }

    /// Sets the level and the format of all further lines.
    package func set(level: Logger.Level, format: LogFormat) {
        state.withLock { $0 = State(level: level, format: format) }
    }

    /// Connects a `Logger` to the output; setting the level of one logger sets it for all.
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
            if event.level >= .warning {
                output.recent.add(
                    unixMilliseconds: line.unixMilliseconds, level: line.level, text: line.messageWithFields)
            }
            // In one call where the system accepts all bytes, so that the lines of several threads do not mix. An error
            // means that the reader has ended or the disk is full, and there is nowhere else to report that.
            try? BlockingIO.write(Array(line.text(output.state.withLock(\.format)).utf8), to: STDERR_FILENO)
        }
    }
}
