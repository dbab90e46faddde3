internal import Glibc
internal import System

/// The settings' file: its keys and values, and where each stands for error messages.
struct SettingsFile {
    let path: String
    /// In the file's order; empty when it holds nothing but comments.
    let entries: [YAMLEntries.Entry]
    private let positions: [String: Int]

    /// Far beyond any file of settings.
    private static let largestInBytes = 1 << 20

    init(path: String) throws(SettingsError) {
        self.path = path
        let bytes = try Self.read(path)
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw .unreadableFile(path: path, reason: "it is not UTF-8 text")
        }
        do throws(YAMLEntries.Fault) {
            entries = try YAMLEntries(bytes).entries
        } catch {
            throw .malformedFile(path: path, line: error.line, reason: error.reason)
        }
        positions = Dictionary(uniqueKeysWithValues: entries.enumerated().map { ($1.key, $0) })
    }

    /// What stands at a key; nil when the file does not have it.
    subscript(key: String) -> YAMLEntries.Entry? {
        positions[key].map { entries[$0] }
    }

    /// Where an entry stands, to begin an error message with.
    func place(of entry: YAMLEntries.Entry) -> String {
        "\(path), line \(entry.line)"
    }

    private static func read(_ path: String) throws(SettingsError) -> [UInt8] {
        func unreadable(_ reason: String) -> SettingsError { .unreadableFile(path: path, reason: reason) }
        // Does not wait for a pipe's writer.
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw unreadable(reason(errno)) }
        defer { close(descriptor) }
        guard let status = try? FileStatus.read(descriptor) else { throw unreadable(reason(errno)) }
        switch status.kind {
        case .file: break
        case .folder: throw unreadable("it is a folder")
        default: throw unreadable("it is no regular file, but a pipe or a device; write the settings into one")
        }
        guard status.size <= largestInBytes else { throw unreadable("it is larger than 1 MiB") }
        do throws(SystemError) {
            return try BlockingIO.read(from: descriptor, limit: status.size)
        } catch {
            throw unreadable(reason(error.code))
        }
    }

    private static func reason(_ code: Int32) -> String {
        switch code {
        case ENOENT, ENOTDIR: "there is no such file"
        case EACCES, EPERM: "permission denied"
        default: SystemError.reason(code)
        }
    }
}
