import Glibc
internal import System

/// Reads ids and token infos from standard input, so that they do not appear in the process list.
enum StandardInput {
    /// Standard input cannot be read: for example, it is closed or a folder.
    struct Failure: Error {
        let reason: String
    }

    /// The whole input as text, without the newline that `echo` adds; nil if it is not UTF-8.
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

    /// The non-empty lines of a text.
    static func lines(_ text: String) -> [String] {
        // Split by scalars, because CR LF is a single Character, which differs from LF.
        text.unicodeScalars.split(separator: "\n").map(withoutReturn).filter { !$0.isEmpty }
    }

    /// The first line of a text, and the rest after it.
    static func firstLine(_ text: String) -> (line: String, rest: String) {
        let scalars = text.unicodeScalars
        guard let end = scalars.firstIndex(of: "\n") else { return (text, "") }
        return (withoutReturn(scalars[..<end]), String(scalars[scalars.index(after: end)...]))
    }

    private static func withoutReturn(_ line: Substring.UnicodeScalarView) -> String {
        String(line.last == "\r" ? line.dropLast() : line)
    }
}
