import Foundation
import TestSupport
import Testing
import TokenStore

@Suite struct DataDirectoryTests {
    @Test("a folder is examined without being made, and what cannot be one is told")
    func examination() throws {
        let folder = try TemporaryDirectory()
        try DataDirectory.examine(folder.path)
        try DataDirectory.examine(folder.path + "/missing/data")
        #expect(!FileManager.default.fileExists(atPath: folder.path + "/missing"))
        let file = folder.path + "/file"
        try Data().write(to: URL(filePath: file))
        #expect(throws: DataDirectoryError.notADirectory(path: file)) { try DataDirectory.examine(file) }
        do {
            try DataDirectory.examine(file + "/data")
            Issue.record("a folder below a file was found good")
        } catch {
            guard case .unusable(file + "/data", _, let code) = error else { throw error }
            #expect(code == ENOTDIR)
        }
    }
}
