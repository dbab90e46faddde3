/// What an operator should know of the audit log.
package enum AuditNotice: Sendable, CustomStringConvertible {
    /// Lines cannot be written from now on.
    case failing(AuditError)
    /// Lines are written again.
    case working(lostEvents: UInt64)
    /// A start has found half a line at the file's end.
    case halfLineRemoved(path: String, bytes: Int)
    /// A start has found a new file for a chain that others began.
    case newFile(path: String, sequence: UInt64)
    /// A start has found fewer lines than were written.
    case linesMissing(path: String, sequence: UInt64)
    /// A start has found other lines than were written.
    case linesChanged(path: String)
    /// The file was removed while the server wrote to it; there is a new one.
    case fileRemoved(path: String)
    /// The file of the running key still has the last period's key.
    case keyNotSaved(AuditError)
    /// The last lines of a file that was renamed may not be on the disk.
    case formerNotSynced(AuditError)

    /// Whether the log may be the work of an attacker, or is not written.
    package var isAlarm: Bool {
        switch self {
        case .working, .halfLineRemoved, .newFile: false
        case .failing, .linesMissing, .linesChanged, .fileRemoved, .keyNotSaved, .formerNotSynced: true
        }
    }

    package var description: String {
        switch self {
        case .failing(let error): "the audit log cannot be written: \(error)"
        case .working(let lostEvents): "the audit log is written again; \(lostEvents) events are not in it"
        case .halfLineRemoved(let path, let bytes):
            "the last line of the audit log \(path) was not complete, and its \(bytes) bytes were removed"
        case .newFile(let path, let sequence):
            "the audit log \(path) is new or empty, and continues after line \(sequence), which is in an earlier file"
        case .linesMissing(let path, let sequence):
            """
            the audit log \(path) lacks lines at its end, the last of them with sequence number \(sequence): after a power \
            cut the disk may have lost them, otherwise find out who removed them
            """
        case .linesChanged(let path):
            """
            the last lines of the audit log \(path) are not the ones that the server wrote; find out who changed them, with \
            token-cache audit verify
            """
        case .fileRemoved(let path):
            "the audit log \(path) was removed, with its lines; find out who did that. A new file continues the log"
        case .keyNotSaved(let error):
            """
            the running key of the audit log cannot be replaced, so lines of more than 15 minutes ago can still be forged on \
            this machine: \(error)
            """
        case .formerNotSynced(let error):
            "the renamed audit log could not be synced, so a power cut may lose its last lines: \(error)"
        }
    }

    /// What a start has found; nil if that is as it should be.
    init?(_ end: LogEnd, path: String) {
        switch end.finding {
        case .unaltered, .newChain:
            guard end.removedBytes > 0 else { return nil }
            self = .halfLineRemoved(path: path, bytes: end.removedBytes)
        case .newFile: self = .newFile(path: path, sequence: end.head.sequence)
        case .linesMissing: self = .linesMissing(path: path, sequence: end.head.sequence)
        case .linesChanged: self = .linesChanged(path: path)
        }
    }
}
