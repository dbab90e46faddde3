/// Something that concerns the log itself, which it records like any other event.
enum LogEvent {
    /// A start of the server.
    case opened(Finding, removedBytes: Int)
    /// A new file continues the chain.
    case continued
    /// The last line of a period, which the next key follows.
    case keyChanged
    /// The server's end, and that of the period.
    case closed
    /// Lines are written again after some could not be.
    case resumed(lostEvents: UInt64)

    /// What a start found in the file.
    enum Finding: String, CaseIterable {
        /// The file ends as the server left it.
        case unaltered
        /// There is no line yet in this chain.
        case newChain = "new_chain"
        /// The file is empty, and continues a chain of other files.
        case newFile = "new_file"
        /// The file lacks lines at its end.
        case linesMissing = "lines_missing"
        /// The last lines are not the ones that the server wrote.
        case linesChanged = "lines_changed"

        /// Whether the line before the start may not be the one that the start's line follows.
        var isBreak: Bool { self == .linesMissing || self == .linesChanged }
    }

    /// The words are part of the file format.
    enum Action: String, CaseIterable {
        case openLog = "open_log"
        case continueLog = "continue_log"
        case changeKey = "change_key"
        case closeLog = "close_log"
        case resumeLog = "resume_log"

        /// Whether it is the last line of its period.
        var endsPeriod: Bool { self == .changeKey || self == .closeLog }
    }

    var action: Action {
        switch self {
        case .opened: .openLog
        case .continued: .continueLog
        case .keyChanged: .changeKey
        case .closed: .closeLog
        case .resumed: .resumeLog
        }
    }

    /// Whether the line names the chain and the line before, so that a file that begins with it can be verified alone.
    var isAnchor: Bool { action == .openLog || action == .continueLog }
}
