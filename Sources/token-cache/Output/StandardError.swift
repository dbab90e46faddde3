import Glibc
import System

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
