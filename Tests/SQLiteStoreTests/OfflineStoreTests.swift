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
}
