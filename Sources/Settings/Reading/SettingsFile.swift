internal import Glibc

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
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { throw unreadable(reason(errno)) }
        switch status.st_mode & S_IFMT {
        case S_IFREG: break
        case S_IFDIR: throw unreadable("it is a folder")
        default: throw unreadable("it is no regular file, but a pipe or a device; write the settings into one")
        }
        guard status.st_size <= largestInBytes else { throw unreadable("it is larger than 1 MiB") }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        var count = 0
        while count < bytes.count {
            let received = unsafe bytes.withUnsafeMutableBytes { buffer in
                let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[count...])
                return unsafe Glibc.read(descriptor, rest.baseAddress, rest.count)
            }
            if received < 0 && errno == EINTR { continue }
            guard received >= 0 else { throw unreadable(reason(errno)) }
            // Somebody has shortened it meanwhile.
            if received == 0 { break }
            count += received
        }
        return Array(bytes[..<count])
    }

    private static func reason(_ code: Int32) -> String {
        switch code {
        case ENOENT, ENOTDIR: "there is no such file"
        case EACCES, EPERM: "permission denied"
        default: unsafe String(cString: strerror(code))
        }
    }
}
