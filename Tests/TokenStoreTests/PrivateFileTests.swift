import Foundation
import TestSupport
import Testing
import TokenStore

@Suite struct PrivateFileTests {
    @Test("a file is copied whole, also one that is longer than a single call copies")
    func copying() throws {
        let folder = try TemporaryDirectory()
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
