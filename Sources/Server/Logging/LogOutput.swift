import Dispatch
import FoundationEssentials
import Glibc
package import HTTP
package import Logging
package import Settings
import Synchronization
import System

/// Writes the server's log to standard error, in a format and from a level on that can change at run time.
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

    /// A logger that writes to this output and follows its level.
    package var logger: Logger {
        Logger(label: "token-cache") { _ in Handler(output: self) }
    }

    /// Sets the level and the format of all further lines.
    func set(level: Logger.Level, format: LogFormat) {
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
                unixMilliseconds: Int64(Date.now.timeIntervalSince1970 * 1_000), level: event.level,
                message: "\(event.message)", fields: fields.map { ($0, "\($1)") }.sorted { $0.0 < $1.0 }
            )
            LogOutput.write(line, output.state.withLock(\.format))
        }
    }

    // MARK: - Standard error

    private struct Waiting {
        var lines = 0
        /// How many lines were dropped since one was last written or queued.
        var dropped = 0
    }

    /// Writes the lines for which there was no room, one after the other.
    private static let queue = DispatchQueue(label: "log")
    /// What waits there.
    private static let waiting = Mutex(Waiting())
    /// How many lines may wait; further ones are dropped.
    private static let limit = 10_000
    /// The longest line that a pipe with room takes without a wait.
    private static let longestAtOnce = 4 << 10
    /// Whether it is a terminal, where a line may have to wait even after poll(2) has found room.
    private static let isTerminal = isatty(STDERR_FILENO) == 1

    /// Writes a line before it returns, unless it might have to wait for a reader: then only the queue waits, and not the
    /// caller, which may be a loop or the store's writer.
    private static func write(_ line: LogLine, _ format: LogFormat) {
        var text = line.marked(format)
        // The lock keeps the lines in order, and nobody else can take the room that was found.
        waiting.withLock { waiting in
            guard waiting.lines < limit else {
                waiting.dropped += 1
                return
            }
            if waiting.dropped > 0 {
                let report = LogLine(
                    unixMilliseconds: line.unixMilliseconds, level: .error,
                    message: "\(waiting.dropped) lines of the log were dropped, as its reader or its disk was too slow",
                    fields: [])
                text = report.marked(format) + text
                waiting.dropped = 0
            }
            let bytes = Array(text.utf8)
            // If it fails, the reader has ended or the disk is full, and there is nowhere else to report that.
            if waiting.lines == 0, !isTerminal, bytes.count <= longestAtOnce, BlockingIO.hasRoom(STDERR_FILENO) {
                try? BlockingIO.write(bytes, to: STDERR_FILENO)
            } else {
                waiting.lines += 1
                queue.async {
                    try? BlockingIO.write(bytes, to: STDERR_FILENO)
                    Self.waiting.withLock { $0.lines -= 1 }
                }
            }
        }
    }

    /// Waits until all lines are written, but for a second at most; call it before the process ends.
    package static func finish() {
        guard waiting.withLock(\.lines) > 0 else { return }
        let finished = Semaphore()
        queue.async { finished.signal() }
        finished.wait(atMost: .seconds(1))
    }
}

/// One entry of the server's log, before formatting.
struct LogLine {
    /// Milliseconds since 1970.
    let unixMilliseconds: Int64
    let level: Logger.Level
    let message: String
    /// Further information beside the message, by name.
    let fields: [(name: String, value: String)]

    /// The formatted line after the mark of its priority, if standard error is the journal.
    func marked(_ format: LogFormat) -> String {
        // The same order, from critical as 2 (LOG_CRIT) to trace and debug as 7 (LOG_DEBUG).
        let severity = Int32(Logger.Level.allCases.firstIndex(of: level) ?? 0)
        return Journal.mark(min(8 - severity, LOG_DEBUG)) + text(format)
    }

    /// The formatted line, with its newline.
    ///
    /// Text: `2026-11-21T02:03:04.567Z info: the message name=value`. JSON: an object with `time`, `level`, `message` and
    /// the fields.
    func text(_ format: LogFormat) -> String {
        switch format {
        case .text:
            "\(time) \(level): \(messageWithFields)\n"
        case .json:
            #"{"time":"\#(time)","level":"\#(level)","message":\#(Self.quoted(message))"#
                + fields.map { #","\#($0.name)":\#(Self.quoted($0.value))"# }.joined() + "}\n"
        }
    }

    /// On one line, without the time and the level: `the message name=value`.
    var messageWithFields: String {
        Self.visible(message) + fields.map { " \($0.name)=\(Self.visible($0.value))" }.joined()
    }

    private var time: String {
        let (second, millisecond) = unixMilliseconds.quotientAndRemainder(dividingBy: 1_000)
        let digits = String(1_000 + millisecond).dropFirst()
        return UTCTime.timestamp(second, fraction: ".\(digits)")
    }

    /// The text with control characters replaced by spaces, so that no part of it can pass for a line of its own.
    private static func visible(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        return String(String.UnicodeScalarView(text.unicodeScalars.map { isControl($0) ? " " : $0 }))
    }

    private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        scalar.properties.generalCategory == .control || scalar == "\u{2028}" || scalar == "\u{2029}"
    }

    /// The text as a JSON string, with its quotation marks (RFC 8259, section 7).
    static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\":
                quoted += "\\"
                quoted.unicodeScalars.append(scalar)
            case "\n": quoted += "\\n"
            case "\t": quoted += "\\t"
            case _ where isControl(scalar):
                let digits = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}

/// Logs an error that can occur with every request: the first at once, then at most one line in ten seconds, with the number
/// of errors that were not logged in between.
///
/// Any thread.
package final class RateLimitedLog: Sendable {
    private struct Recent {
        var lastLine: ContinuousClock.Instant?
        var unlogged = 0
    }

    private let logger: Logger
    private let level: Logger.Level
    private let recent = Mutex(Recent())
    private static let interval = Duration.seconds(10)

    package init(_ logger: Logger, _ level: Logger.Level = .error) {
        self.logger = logger
        self.level = level
    }

    /// - Parameter requestID: The id of the request in which the error occurred.
    package func log(_ text: @autoclosure () -> String, requestID: RequestID = .none) {
        let now = ContinuousClock.now
        let unlogged: Int? = recent.withLock { recent in
            if let last = recent.lastLine, now - last < Self.interval {
                recent.unlogged += 1
                return nil
            }
            defer { recent = Recent(lastLine: now) }
            return recent.unlogged
        }
        guard let unlogged else { return }
        let count = unlogged == 0 ? "" : " (and \(unlogged) times more since the last such line)"
        var fields: Logger.Metadata = [:]
        if let id = requestID.text { fields["request_id"] = "\(id)" }
        logger.log(level: level, "\(text())\(count)", metadata: fields)
    }
}
