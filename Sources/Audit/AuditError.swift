package import System

/// Why an audit log cannot be opened, written or read; says what to do about it.
package enum AuditError: Error, Hashable, CustomStringConvertible {
    case file(path: String, SystemError)
    /// Only a part of the lines could be written, and that part was cut off again.
    case full(path: String)
    /// The disk has not answered for `SubmittedEvents.patience`.
    case stalled(path: String)
    /// A part of some lines is in the file, and cutting it off has failed so far.
    case torn(path: String, SystemError)
    case inUse(path: String)
    /// The file contains something other than an audit log.
    case foreign(path: String)
    /// The file belongs to the chain of another first key.
    case ofAnotherChain(path: String)
    /// A file that is to continue the log already contains lines.
    case notEmpty(path: String)
    /// The head that the log is verified against comes before the first line of the given files.
    case headInEarlierFile(head: UInt64, first: UInt64)
    case noRunningKey(path: String)
    case keyFile(path: String, reason: String)
    case keyFileMode(path: String, mode: UInt32)
    case keyFileExists(path: String)
    /// The server already has a key and must not get another one.
    case runningKeyExists(path: String)
    case closed

    package var description: String {
        switch self {
        case .file(let path, let error):
            """
            \(path) cannot be used (\(error))\
            \(error.fileAdvice(otherwise: "check the path, and that the server's user has access to it and its folder"))
            """
        case .full(let path):
            "\(path) cannot be written to: its disk is full, or the file has reached its size limit"
        case .stalled(let path): "the disk of \(path) does not respond; check it"
        case .torn(let path, let error):
            "the end of \(path) is an incomplete line, which cannot be cut off (\(error)); check its disk"
        case .inUse(let path): "another process writes to \(path); each server needs an audit log of its own"
        case .foreign(let path): "\(path) is not an audit log; name another file with audit.file"
        case .ofAnotherChain(let path):
            """
            \(path) belongs to another first key than the running key does; move the file away, as only its own first key \
            verifies it, or put its running key back
            """
        case .notEmpty(let path): "\(path) is not empty; a file that continues the audit log has to be new or empty"
        case .headInEarlierFile(let head, let first):
            "the head is line \(head), and the first line of these files is \(first); give the earlier files too"
        case .noRunningKey(let path):
            """
            the audit log's running key \(path) does not exist; make it with token-cache audit key FILE, with the server's \
            --config and as its user or root, and keep FILE elsewhere: it verifies the log
            """
        case .keyFile(let path, let reason): "the key file \(path) cannot be used: \(reason)"
        case .keyFileMode(let path, let mode):
            """
            the key file \(path) can be read by others (mode 0\(String(mode, radix: 8))); chmod 600 it, \
            and if others may have read it, begin a new log with token-cache audit key FILE --replace
            """
        case .keyFileExists(let path):
            """
            \(path) exists already, and is not overwritten: without its key a log can no longer be verified; name another file
            """
        case .runningKeyExists(let path):
            """
            the running key \(path) exists already, so there is nothing to do; to end the log that belongs to it and begin a \
            new one, move the log's files away, and run the command again with --replace
            """
        case .closed: "the audit log is closed"
        }
    }
}
