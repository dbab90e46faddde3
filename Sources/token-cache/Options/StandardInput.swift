import Glibc
internal import System

/// What a command reads from standard input: ids and token infos that would otherwise stand in the list of processes.
enum StandardInput {
    /// It cannot be read: it is closed, say, or a folder.
    struct Failure: Error {
        let reason: String
    }

    /// All of it as text, without the line end that `echo` adds; nil when it is not UTF-8.
    static func text() throws(Failure) -> String? {
        guard let text = String(validating: try bytes(), as: UTF8.self) else { return nil }
        return text.unicodeScalars.last == "\n" ? withoutReturn(text.unicodeScalars.dropLast()) : text
    }

    private static func bytes() throws(Failure) -> [UInt8] {
        do throws(SystemError) {
            return try BlockingIO.read(from: STDIN_FILENO)
        } catch {
            throw Failure(reason: error.reason)
        }
    }

    /// The lines of a text, without the empty ones.
    static func lines(_ text: String) -> [String] {
        // Of scalars: as a character, CR LF is no line feed.
        text.unicodeScalars.split(separator: "\n").map(withoutReturn).filter { !$0.isEmpty }
    }

    /// The first line of a text, and what follows it.
    static func firstLine(_ text: String) -> (line: String, rest: String) {
        let scalars = text.unicodeScalars
        guard let end = scalars.firstIndex(of: "\n") else { return (text, "") }
        return (withoutReturn(scalars[..<end]), String(scalars[scalars.index(after: end)...]))
    }

    private static func withoutReturn(_ line: Substring.UnicodeScalarView) -> String {
        String(line.last == "\r" ? line.dropLast() : line)
    }
}
