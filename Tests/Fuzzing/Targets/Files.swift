import Foundation
import Glibc
import TestSupport

/// Files of targets that read files, in a folder that the process removes at its end.
enum Files {
    /// In memory if that is possible, as stores and audit logs sync their files many times for each input.
    static let folder: TemporaryDirectory = {
        guard let folder = (try? TemporaryDirectory(in: "/dev/shm")) ?? (try? TemporaryDirectory()) else {
            preconditionFailure("there is a temporary folder")
        }
        atexit { try? FileManager.default.removeItem(atPath: Files.folder.path) }
        return folder
    }()

    /// Writes a file that only its owner may read, in the place of one of that name.
    @discardableResult
    static func write(_ bytes: some Sequence<UInt8>, to name: String) -> String {
        let path = name.hasPrefix("/") ? name : folder.path + "/" + name
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        precondition(descriptor >= 0, "the temporary folder can be written to")
        let bytes = Array(bytes)
        precondition(Glibc.write(descriptor, bytes, bytes.count) == bytes.count, "the temporary folder has room")
        close(descriptor)
        return path
    }

    /// The bytes of a file; none if there is none.
    static func read(_ path: String) -> [UInt8] {
        FileManager.default.contents(atPath: path).map { Array($0) } ?? []
    }

    /// Makes a folder; one of the same name is replaced.
    ///
    /// - Returns: Its path.
    static func emptyFolder(_ name: String) -> String {
        let path = folder.path + "/" + name
        try? FileManager.default.removeItem(atPath: path)
        precondition(mkdir(path, 0o700) == 0, "the temporary folder can be written to")
        return path
    }
}
