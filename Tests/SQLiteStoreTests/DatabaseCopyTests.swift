import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct DatabaseCopyTests {
    @Test("a copy has no journal of its own, as it is thrown away after an error")
    func journal() throws {
        let folder = try TemporaryDirectory()
        let source = try SQLiteConnection(path: folder.path + "/source", mode: .readWriteCreate)
        try source.execute("CREATE TABLE page (number, value); INSERT INTO page VALUES (1, zeroblob(100000))")
        let copy = folder.path + "/copy"
        #expect(FileManager.default.createFile(atPath: copy, contents: nil))
        var files: Set<String> = []
        do {
            let copying = try DatabaseCopy(of: source, to: copy)
            while try copying.step(pages: 5).remaining > 0 {
                files.formUnion(try FileManager.default.contentsOfDirectory(atPath: folder.path))
                try source.execute("UPDATE page SET number = number + 1")
            }
        }
        #expect(files == ["source", "copy"])
        let result = try SQLiteConnection(path: copy, mode: .readOnly).text("PRAGMA integrity_check")
        #expect(result == "ok")
        #expect(try SQLiteConnection(path: copy, mode: .readOnly).integer("SELECT number FROM page") > 1)
    }
}
