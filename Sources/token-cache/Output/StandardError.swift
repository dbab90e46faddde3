import Glibc
import System

/// What a command tells beside its result: faults, and how far it is.
enum StandardError {
    /// Writes a text as it is.
    ///
    /// What cannot be written is dropped: nobody is left who could be told.
    static func write(_ text: String) {
        try? BlockingIO.write(Array(text.utf8), to: STDERR_FILENO)
    }

    /// Tells a person what is wrong.
    static func tell(_ fault: String) {
        write("token-cache: \(fault)\n")
    }
}
