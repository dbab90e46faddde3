import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// The size of pages, which a database keeps until it is copied row by row.
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

    /// A database as versions before this choice made them.
    private func earlierDatabase() throws {
        let connection = try SQLiteConnection(path: path, mode: .readWriteCreate)
        try connection.execute("PRAGMA page_size = \(PageSize.ofEarlier)")
        #expect(try connection.text("PRAGMA journal_mode = WAL") == "wal")
        try Schema.create(connection)
    }

    @Test func `a new database has small pages, and so has its backup`() async throws {
        let store = try SQLiteTokenStore(at: data)
        await SQLiteAdministrator(store).fill(0..<100)
        _ = try await SQLiteAdministrator(store).backUp(to: folder.path + "/backup") { _ in }
        store.close()
        #expect(try pageSize() == 2_048)
        #expect(try pageSize(folder.path + "/backup") == 2_048)
    }

    @Test func `an earlier database keeps its pages, and is used as it is`() async throws {
        try earlierDatabase()
        for round in 0..<2 {
            let store = try SQLiteTokenStore(at: data) { $0.isSealed = false }
            await SQLiteAdministrator(store).fill(0..<(500 * (round + 1)))
            let verification = try await SQLiteAdministrator(store).verify { _ in }
            #expect(verification.isSound && verification.tokens == 500 * (round + 1))
            store.close()
            #expect(try pageSize() == 4_096)
        }
    }

    @Test func `sealing an earlier database gives it small pages`() async throws {
        try earlierDatabase()
        do {
            let store = try SQLiteTokenStore(at: data) { $0.isSealed = false }
            await SQLiteAdministrator(store).fill(0..<500)
            store.close()
        }
        let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        do {
            let offline = try OfflineSQLiteStore(directory: data, options: options) { _ in }
            #expect(try offline.convert(isSealed: true) { _ in }.tokens == 500)
        }
        #expect(try pageSize() == 2_048)
        let sealed = try SQLiteTokenStore(at: data)
        defer { sealed.close() }
        let verification = try await SQLiteAdministrator(sealed).verify { _ in }
        #expect(verification.isSound && verification.tokens == 500)
        #expect(try await SQLiteAdministrator(sealed).info("id499") == "info499")
    }
}
