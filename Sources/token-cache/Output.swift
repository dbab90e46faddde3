import ArgumentParser
import FoundationEssentials
import Glibc
import Operations
import Synchronization
import System
import TokenStore

/// Prints a command's result.
///
/// If the result cannot be written, the command fails, so that nobody takes an empty or truncated file for the result.
enum StandardOutput {
    /// Opens `/dev/null` in the place of closed standard streams.
    ///
    /// Otherwise the next file to be opened, such as the store's, would get the number of a standard stream, and output would
    /// go into it.
    static func reserve() {
        for (number, mode) in [(STDIN_FILENO, O_WRONLY), (STDOUT_FILENO, O_RDONLY), (STDERR_FILENO, O_WRONLY)]
        where fcntl(number, F_GETFD) < 0 {
            // open(2) returns the lowest free number, which is this one. The mode makes reading the input or writing the
            // output an error.
            _ = unsafe open("/dev/null", mode)
        }
    }

    /// Prints a text and a newline; throws the exit status 1 if that fails.
    static func print(_ text: String) throws {
        try write(Array((text + "\n").utf8))
    }

    /// Writes bytes unchanged; throws the exit status 1 if that fails.
    static func write(_ bytes: [UInt8]) throws {
        do {
            try BlockingIO.write(bytes, to: STDOUT_FILENO)
        } catch {
            throw fault(error)
        }
    }

    private static func fault(_ error: SystemError) -> ExitCode {
        // EPIPE means that the reader, such as head(1), needs no more output.
        if error.code != EPIPE {
            StandardError.print("standard output cannot be written: \(error.reason)")
        }
        return ExitCode.failure
    }
}

/// Writes errors and progress to standard error, apart from the command's result.
enum StandardError {
    /// Writes a text unchanged.
    ///
    /// An error is ignored, because there is nowhere else to report it.
    static func write(_ text: String) {
        try? BlockingIO.write(Array(text.utf8), to: STDERR_FILENO)
    }

    /// Prints an error message on a line of its own.
    static func print(_ fault: String) {
        write("\(Journal.mark(LOG_ERR))token-cache: \(fault)\n")
    }
}

/// The flag `--json`: whether a command prints its result as text or as JSON.
struct OutputOptions: ParsableArguments {
    @Flag(name: .long, help: "Print JSON.")
    var json = false

    /// Prints one result.
    ///
    /// - Parameters:
    ///   - value: The result, for JSON.
    ///   - text: The result as text, without the final newline.
    func print(_ value: some Encodable, _ text: @autoclosure () -> String) throws {
        try StandardOutput.print(json ? try Self.text(value) : text())
    }

    static func text(_ value: some Encodable) throws -> String {
        String(decoding: try OperationsJSON.encode(value), as: UTF8.self)
    }
}

/// Shows progress in a line on the terminal; does nothing if standard error is not a terminal.
///
/// Any thread.
final class ProgressBar: Sendable {
    private let title: String
    private let isShown = isatty(STDERR_FILENO) == 1
    private let lastLine = Mutex("")
    /// The first progress that was shown, and when.
    private let beginning = Mutex<(time: ContinuousClock.Instant, share: Double)?>(nil)
    private static let width = 30

    /// - Parameter title: Names the work, such as `Verifying`.
    init(_ title: String) {
        self.title = title
    }

    func show(_ progress: StoreProgress) {
        guard isShown else { return }
        let total = max(progress.total, 1)
        let share = min(max(Double(progress.done) / Double(total), 0), 1)
        let filled = Int(share * Double(Self.width))
        let bar = String(repeating: "#", count: filled) + String(repeating: ".", count: Self.width - filled)
        write("\r\(title) [\(bar)] \(Int(share * 100)) %\(remaining(at: share))\u{1B}[K")
    }

    /// The estimated time that is left; empty in the first two seconds.
    private func remaining(at share: Double) -> String {
        let now = ContinuousClock.now
        let (began, first) = beginning.withLock { beginning in
            if beginning == nil { beginning = (now, share) }
            return beginning ?? (now, share)
        }
        let elapsed = now - began
        guard elapsed > .seconds(2), share > first else { return "" }
        return ", \(Text.age((elapsed * ((1 - share) / (share - first))).components.seconds)) left"
    }

    /// Removes the bar from the terminal.
    func finish() {
        guard isShown else { return }
        write("\r\u{1B}[K")
    }

    private func write(_ line: String) {
        let isNew = lastLine.withLock { last in
            defer { last = line }
            return last != line
        }
        if isNew { StandardError.write(line) }
    }
}

/// Formats numbers and times for people.
enum Text {
    /// A number with separators: `1,234,567`.
    static func number(_ number: Int) -> String {
        let digits = String(number.magnitude)
        var text = ""
        for (index, digit) in digits.enumerated() {
            if index > 0 && (digits.count - index) % 3 == 0 { text.append(",") }
            text.append(digit)
        }
        return number < 0 ? "-" + text : text
    }

    /// A size in bytes: `12.3 MiB`.
    static func bytes(_ bytes: Int) -> String {
        let units = ["KiB", "MiB", "GiB", "TiB"]
        guard bytes >= 1_024 else { return count(bytes, "byte") }
        var value = Double(bytes) / 1_024
        var unit = 0
        while value >= 1_024 && unit < units.count - 1 {
            value /= 1_024
            unit += 1
        }
        return "\((value * 10).rounded() / 10) \(units[unit])"
    }

    /// `1 token`, `2 tokens`.
    static func count(_ count: Int, _ noun: String) -> String {
        "\(number(count)) \(noun)\(count == 1 ? "" : "s")"
    }

    /// A duration in its two largest units: `3d 4h`, `5m 6s`.
    static func age(_ seconds: Int64) -> String {
        let seconds = max(0, seconds)
        switch seconds {
        case 86_400...: return "\(seconds / 86_400)d \(seconds % 86_400 / 3_600)h"
        case 3_600...: return "\(seconds / 3_600)h \(seconds % 3_600 / 60)m"
        case 60...: return "\(seconds / 60)m \(seconds % 60)s"
        default: return "\(seconds)s"
        }
    }

    /// The duration between two times, in its two largest units; 0 if it is negative or overflows.
    static func age(from start: Int64, to end: Int64) -> String {
        let (seconds, hasOverflowed) = end.subtractingReportingOverflow(start)
        return age(hasOverflowed ? 0 : seconds)
    }

    /// The text with control characters escaped as in `\u{1b}`, because clients choose it and a terminal would interpret them.
    static func visible(_ text: String) -> String {
        var visible = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator:
                visible.append(contentsOf: scalar.escaped(asASCII: true).unicodeScalars)
            default: visible.append(scalar)
            }
        }
        return String(visible)
    }

    /// A time: `2026-11-21T02:03:04Z`.
    static func time(_ unixTime: Int64) -> String {
        Date(timeIntervalSince1970: TimeInterval(unixTime)).formatted(.iso8601)
    }
}
