import Foundation

/// What a command reads from standard input: ids and token infos that would otherwise stand in the list of processes.
enum StandardInput {
    /// All of it as text, without the line end that `echo` adds; nil when it is not UTF-8.
    static func text() -> String? {
        let data = (try? FileHandle.standardInput.readToEnd()) ?? Data()
        guard let text = String(validating: data, as: UTF8.self) else { return nil }
        return text.hasSuffix("\n") ? String(text.dropLast()) : text
    }
}
