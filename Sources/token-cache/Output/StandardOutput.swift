import ArgumentParser
import Glibc

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
        let bytes = Array((text + "\n").utf8)
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                unsafe write(STDOUT_FILENO, bytes.baseAddress?.advanced(by: written), bytes.count - written)
            }
            if count < 0 && errno == EINTR { continue }
            if count < 0 && errno == EAGAIN {
                waitForRoom()
                continue
            }
            guard count >= 0 else { throw fault(errno) }
            written += count
        }
    }

    /// Somebody else has made the pipe one that does not wait.
    private static func waitForRoom() {
        var state = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
        _ = unsafe poll(&state, 1, -1)
    }

    private static func fault(_ code: Int32) -> ExitCode {
        // Whoever reads has read enough.
        if code != EPIPE {
            let reason = unsafe String(cString: strerror(code))
            StandardError.tell("standard output cannot be written: \(reason)")
        }
        return ExitCode.failure
    }
}
