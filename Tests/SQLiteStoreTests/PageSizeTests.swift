import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// The size of pages.
@Suite struct PageSizeTests {
    private let folder: TemporaryDirectory
    private var data: String { folder.path + "/data" }
    private var path: String { data + "/tokens.db" }

    init() throws {
        folder = try TemporaryDirectory()
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
    }

    /// As the file's head says (sqlite.org/fileformat.html, section 1.3.2).
    private func pageSize(_ file: String? = nil) throws -> Int {
        let head = try #require(try FileHandle(forReadingFrom: URL(filePath: file ?? path)).read(upToCount: 18))
        return Int(head[16]) << 8 | Int(head[17])
    }

    @Test func `a new database has small pages, and so has its backup`() async throws {
        let store = try SQLiteTokenStore(at: data)
        await SQLiteAdministrator(store).fill(0..<100)
        _ = try await SQLiteAdministrator(store).backUp(to: folder.path + "/backup") { _ in }
        store.close()
        #expect(try pageSize() == 2_048)
        #expect(try pageSize(folder.path + "/backup") == 2_048)
    }
}
