internal import Synchronization

/// The last lines of the log that warn of something, for operators who look at the status page.
///
/// At most 100 lines of 1,000 bytes. Lines of the log contain no secrets, and so these do not.
///
/// Any thread.
package final class RecentLog: Sendable {
    /// One line.
    package struct Line: Sendable, Equatable {
        /// 1 for the first one since the start.
        package let number: UInt64
        /// Milliseconds since 1970.
        package let unixMilliseconds: Int64
        package let level: String
        package let text: String
    }

    private struct State {
        var lines: [Line] = []
        var count: UInt64 = 0
    }

    private let state = Mutex(State())

    /// How many lines are kept.
    package static let lineLimit = 100
    /// The bytes of one line; what is longer ends with an ellipsis.
    package static let textLimit = 1_000

    package init() {}

    /// How many lines there were since the start.
    package var count: UInt64 { state.withLock(\.count) }

    /// The last lines, the oldest first.
    package var lines: [Line] { state.withLock(\.lines) }

    /// Adds a line, in the place of the oldest one if there are too many.
    package func add(unixMilliseconds: Int64, level: String, text: String) {
        let text = Self.cut(text)
        state.withLock { state in
            state.count += 1
            state.lines.removeFirst(max(0, state.lines.count - Self.lineLimit + 1))
            state.lines.append(
                Line(number: state.count, unixMilliseconds: unixMilliseconds, level: level, text: text))
        }
    }

    private static func cut(_ text: String) -> String {
        guard text.utf8.count > textLimit else { return text }
        let ellipsis = "…"
        var end = text.utf8.index(text.utf8.startIndex, offsetBy: textLimit - ellipsis.utf8.count)
        // Not within a character.
        while end.samePosition(in: text.unicodeScalars) == nil { end = text.utf8.index(before: end) }
        return text[..<end] + ellipsis
    }
}
