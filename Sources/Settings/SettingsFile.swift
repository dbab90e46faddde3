internal import Configuration
internal import Foundation
internal import Glibc
internal import SystemPackage
internal import Yams

/// The YAML file: its values through swift-configuration, its keys and their lines for error messages.
struct SettingsFile {
    let path: String
    let reader: ConfigReader
    /// Each key with the line it stands on, from 1.
    let lines: [String: Int]

    /// Nil when the file holds nothing but comments.
    init?(path: String) async throws(SettingsError) {
        if let reason = Self.unfitness(of: path) { throw .unreadableFile(path: path, reason: reason) }
        let text: String
        do {
            text = try String(contentsOf: URL(fileURLWithPath: path), encoding: .utf8)
        } catch {
            throw .unreadableFile(path: path, reason: Self.reason(error))
        }
        do {
            guard let root = try compose(yaml: text), root != .scalar(.init("")) else { return nil }
            guard let mapping = root.mapping else {
                throw SettingsError.malformedFile(path: path, reason: "found no keys")
            }
            lines = Self.lines(of: mapping, under: "")
            reader = ConfigReader(
                provider: try await FileProvider<YAMLSnapshot>(filePath: FilePath(path))
            )
            self.path = path
        } catch let error as SettingsError {
            throw error
        } catch let error as YamlError {
            throw .malformedFile(path: path, reason: "\(error)")
        } catch {
            throw .malformedFile(path: path, reason: "\(error)")
        }
    }

    /// Where a key stands, to begin an error message with.
    func place(of key: String) -> String {
        lines[key].map { "\(path), line \($0)" } ?? path
    }

    private static func lines(of mapping: Node.Mapping, under prefix: String) -> [String: Int] {
        var lines: [String: Int] = [:]
        for (name, value) in mapping {
            let key = prefix + (name.string ?? "")
            if let section = value.mapping, !section.isEmpty {
                lines.merge(Self.lines(of: section, under: key + ".")) { first, _ in first }
            } else {
                lines[key] = name.mark?.line ?? 0
            }
        }
        return lines
    }

    /// A pipe could not be read twice, as is done here.
    private static func unfitness(of path: String) -> String? {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        if status.st_mode & S_IFMT == S_IFDIR { return "it is a folder" }
        let isFile = status.st_mode & S_IFMT == S_IFREG
        return isFile ? nil : "it is no regular file, but a pipe or a device; write the settings into one"
    }

    private static func reason(_ error: any Error) -> String {
        switch (error as? CocoaError)?.code {
        case .fileReadNoSuchFile, .fileNoSuchFile: "there is no such file"
        case .fileReadNoPermission: "permission denied"
        case .fileReadInapplicableStringEncoding, .fileReadCorruptFile: "it is not UTF-8 text"
        default: "\((error as NSError).localizedDescription)"
        }
    }
}
