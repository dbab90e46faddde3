import Glibc

/// What a command tells beside its result: faults, and how far it is.
enum StandardError {
    /// Writes a text as it is.
    ///
    /// What cannot be written is dropped: nobody is left who could be told.
    static func write(_ text: String) {
        let bytes = Array(text.utf8)
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                unsafe Glibc.write(STDERR_FILENO, bytes.baseAddress?.advanced(by: written), bytes.count - written)
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return }
            written += count
        }
    }

    /// Tells a person what is wrong.
    static func tell(_ fault: String) {
        write("token-cache: \(fault)\n")
    }
}
