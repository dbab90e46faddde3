import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct OfflineStoreTests {
    private let folder: TemporaryDirectory
    private let data: String

    init() throws {
        folder = try TemporaryDirectory()
        data = folder.path + "/data"
    }

    @Test(
        "a store is sealed and put in the clear again, with all of its tokens and their times",
        arguments: [
            // The rows are sorted in memory, and in files.
            64 << 20, 50_000,
        ])
    func conversion(_ batchBytes: Int) async throws {
        let first = try SQLiteTokenStore(at: data) { $0.isSealed = false }
        let tokens = (0..<2_500).map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64?(7)) }
        _ = await SQLiteAdministrator(first).store(tokens)
        first.close()
        for isSealed in [true, false] {
            var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
            options.isSealed = isSealed
            var replacement: OfflineSQLiteStore? = try OfflineSQLiteStore(directory: data, options: options) { _ in }
            replacement?.batchBytes = batchBytes
            let seen = Mutex<[StoreProgress]>([])
            #expect(
                try replacement?.convert(isSealed: isSealed) { one in seen.withLock { $0.append(one) } }.tokens == 2_500
            )
            #expect(seen.withLock { $0.map(\.done) == $0.map(\.done).sorted() && $0.last?.done == 2_500 })
            #expect(throws: StoreError.self) { try replacement?.convert(isSealed: isSealed) { _ in } }
            replacement = nil
            let store = try SQLiteTokenStore(at: data) { $0.isSealed = isSealed }
            let administrator = SQLiteAdministrator(store)
            #expect(try await administrator.info("id2499") == "info2499")
            #expect(try await administrator.page(after: nil, limit: 5).entries.map(\.writtenAt) == [7, 7, 7, 7, 7])
            let verification = try await administrator.verify { _ in }
            #expect(verification.isSound && verification.tokens == 2_500)
            store.close()
            let file = try Data(contentsOf: URL(filePath: data + "/tokens.db"))
            #expect((file.range(of: Data("info1234".utf8)) == nil) == isSealed)
            #expect(try FileManager.default.contentsOfDirectory(atPath: data).allSatisfy { !$0.contains(".new") })
        }
    }

    private func offline(isSealed: Bool, batchBytes: Int) throws -> OfflineSQLiteStore {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        options.isSealed = isSealed
        let offline = try OfflineSQLiteStore(directory: data, options: options) { _ in }
        offline.batchBytes = batchBytes
        return offline
    }

    @Test("what an unseal has written in the clear is overwritten, also if it fails", arguments: [false, true])
    func overwriting(fails: Bool) async throws {
        let first = try SQLiteTokenStore(at: data)
        let info = [UInt8](repeating: UInt8(ascii: "x"), count: 1_000)
        _ = await SQLiteAdministrator(first).store(
            (0..<2_500).map { (Token(id: Array("id\($0)".utf8), info: info), Int64?(7)) })
        first.close()
        if fails {
            try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
                .execute("UPDATE token SET value = zeroblob(60) WHERE slot = (SELECT max(slot) FROM token)")
        }
        for isSealed in fails ? [false] : [false, true] {
            var (rows, new): ([FileHandle], [FileHandle]) = ([], [])
            func convert() throws {
                _ = try offline(isSealed: isSealed, batchBytes: 1 << 20).convert(isSealed: isSealed) { _ in
                    // All files are open when the first rows have been read.
                    guard rows.isEmpty else { return }
                    rows = (try? RowSorterTests.openFiles(in: data, named: "tokens.db.new.rows (deleted)")) ?? []
                    new = (try? RowSorterTests.openFiles(in: data, named: "tokens.db.new")) ?? []
                }
            }
            if fails { #expect(throws: StoreError.self) { try convert() } } else { try convert() }
            #expect(rows.count > 10 && !new.isEmpty)
            let contents = try (fails ? rows + new : rows).compactMap { handle in
                try handle.seek(toOffset: 0)
                return try handle.readToEnd()
            }
            #expect(contents.contains { $0.count > 10_000 })
            #expect(contents.allSatisfy { content in content.allSatisfy { $0 == 0 } } == !isSealed)
        }
    }

    @Test("a wrong count of tokens does not keep a store from being converted", arguments: [Int.max, -1, 0])
    func wrongCount(_ count: Int) async throws {
        let first = try SQLiteTokenStore(at: data)
        await SQLiteAdministrator(first).fill(0..<100)
        first.close()
        try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite).execute("UPDATE store SET tokens = \(count)")
        #expect(try offline(isSealed: false, batchBytes: 10_000).convert(isSealed: false) { _ in }.tokens == 100)
    }
}
