import ArgumentParser
import Glibc
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
