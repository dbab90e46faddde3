internal import Glibc
package import System

/// The file of the access log before the server opens it.
package enum AccessLogFile {
    /// Fails if the server could not open the file; creates nothing.
    ///
    /// It does not find out whether a pipe has a reader, without which the server cannot open it: only opening it would.
    package static func examine(_ path: String) throws(SystemError) {
        guard FileStatus(path)?.isPipe != true else {
            // Opening and closing a pipe would tell its reader that the log has ended.
            guard unsafe access(path, W_OK) == 0 else { throw SystemError.last("open") }
            return
        }
        do throws(SystemError) {
            _ = try FileDescriptor(opening: path, O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK)
        } catch {
            guard error.code == ENOENT else { throw error }
            guard unsafe access(Path.folder(of: path), W_OK | X_OK) == 0 else { throw SystemError.last("open") }
        }
    }

    /// The server's message for an error.
    package static func fault(_ path: String, _ error: SystemError) -> StartError {
        .accessLog(path: path, error)
    }
}
