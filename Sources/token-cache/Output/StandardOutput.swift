import ArgumentParser
import Glibc
import Operations
import System

/// Prints a command's result.
///
/// If the result cannot be written, the command fails; otherwise an empty or cut file could be taken for the result.
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
        do throws(SystemError) {
            try BlockingIO.write(bytes, to: STDOUT_FILENO, waitsForRoom: true)
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
        write("token-cache: \(fault)\n")
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
