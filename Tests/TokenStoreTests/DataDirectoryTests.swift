import Foundation
import TestSupport
import Testing
import TokenStore

@Suite struct DataDirectoryTests {
    @Test("a folder is examined without being made, and what cannot be one is told")
    func examination() throws {
        let folder = TemporaryDirectory()
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

    @Test("a folder is usable only with all three permissions")
    func permissions() async {
        // In a process of its own, as permissions do not bind root.
        await #expect(processExitsWith: .success) {
            if geteuid() == 0 { precondition(setuid(65_534) == 0) }
            let path = "/tmp/token-cache-test-\(UUID())"
            precondition(mkdir(path, 0o700) == 0)
            defer { rmdir(path) }
            try DataDirectory.examine(path)
            for mode: mode_t in [0o300, 0o500, 0o600, 0o200] {
                precondition(chmod(path, mode) == 0)
                #expect(throws: DataDirectoryError.unusable(path: path, call: "access", code: EACCES)) {
                    try DataDirectory.examine(path)
                }
            }
        }
    }
}

@Suite struct PrivateFileTests {
    @Test("a file is copied whole, also one that is longer than a single call copies")
    func copying() throws {
        let folder = TemporaryDirectory()
        let (source, copy) = (folder.path + "/source", folder.path + "/copy")
        // Nearly all of it is a hole, which is copied quickly.
        try Data("beginning".utf8).write(to: URL(filePath: source))
        let file = try FileHandle(forWritingTo: URL(filePath: source))
        try file.seek(toOffset: 40 << 20)
        try file.write(contentsOf: Data("end".utf8))
        try file.close()
        try PrivateFile.copy(source, to: copy)
        #expect(FileManager.default.contentsEqual(atPath: source, andPath: copy))
        #expect(try FileManager.default.attributesOfItem(atPath: copy)[.posixPermissions] as? Int == 0o600)
    }
}
