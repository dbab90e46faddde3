internal import Glibc
internal import System

/// A file of settings: its keys and values, with their lines for error messages.
struct SettingsFile {
    let path: String
    /// In the file's order; empty if the file has nothing but comments.
    let entries: [YAMLEntries.Entry]
    private let positions: [String: Int]

    /// Far more than all settings with their comments take.
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

    /// The entry of a key; nil if the file has none.
    subscript(key: String) -> YAMLEntries.Entry? {
        positions[key].map { entries[$0] }
    }

    /// The file and line of an entry, which begin an error message.
    func place(of entry: YAMLEntries.Entry) -> String {
        "\(path), line \(entry.line)"
    }

    private static func read(_ path: String) throws(SettingsError) -> [UInt8] {
        let reason: String
        do throws(SystemError) {
            // Without O_NONBLOCK, open(2) would wait for the writer of a pipe.
            let descriptor = try FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK)
            let status = try FileStatus.read(descriptor.number)
            if let fault = fault(status) {
                reason = fault
            } else {
                // Not by the file's size, which some file systems report as 0 for files with contents.
                let bytes = try BlockingIO.read(from: descriptor.number, limit: largestInBytes + 1)
                if bytes.count <= largestInBytes { return bytes }
                reason = tooLarge
            }
        } catch {
            reason = Self.reason(error.code)
        }
        throw .unreadableFile(path: path, reason: reason)
    }

    private static let tooLarge = "it is larger than 1 MiB"

    /// Why a file cannot hold settings; nil if it can.
    private static func fault(_ status: FileStatus) -> String? {
        switch status.kind {
        case .file: status.size <= largestInBytes ? nil : tooLarge
        case .folder: "it is a folder"
        default: "it is no regular file, but a pipe or a device; write the settings into one"
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
