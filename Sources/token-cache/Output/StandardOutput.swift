import ArgumentParser
import Glibc
import System

/// What a command prints.
///
/// That it cannot be written is a fault: whoever asked would take an empty file for the answer.
enum StandardOutput {
    /// Takes the numbers of standard streams that are closed.
    ///
    /// Otherwise the next file to be opened, such as the store's, would get them, and what is printed.
    static func reserve() {
        for (number, mode) in [(STDIN_FILENO, O_WRONLY), (STDOUT_FILENO, O_RDONLY), (STDERR_FILENO, O_WRONLY)]
        where fcntl(number, F_GETFD) < 0 {
            // The lowest number that is free is this one. Input and output get the mode that makes their use a fault.
            _ = unsafe open("/dev/null", mode)
        }
    }

    /// Prints a text and a line end, or ends the command with status 1.
    static func print(_ text: String) throws {
        do throws(SystemError) {
            try BlockingIO.write(Array((text + "\n").utf8), to: STDOUT_FILENO, waitsForRoom: true)
        } catch {
            throw fault(error)
        }
    }

    private static func fault(_ error: SystemError) -> ExitCode {
        // Whoever reads has read enough.
        if error.code != EPIPE {
            StandardError.tell("standard output cannot be written: \(error.reason)")
        }
        return ExitCode.failure
    }
}
