import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct ListingTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }

    @Test("pages and steps end early when tokens are large", arguments: [0, 1, 2, 3, 4, 9])
    func largeTokens(_ count: Int) async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        let half = [UInt8](repeating: 65, count: WriterConnection.stepBytes / 2)
        let outcomes = await administrator.store((0..<count).map { (Token(id: [UInt8(65 + $0)], info: half), nil) })
        for outcome in outcomes { try outcome.get() }
        var (cursor, sizes): (String?, [Int]) = (nil, [])
        while true {
            let page = try await administrator.page(after: cursor, limit: 100)
            sizes.append(page.entries.count)
            cursor = page.next
            if cursor == nil { break }
        }
        let pages = [Int](repeating: 2, count: count / 2)
        #expect(sizes == (count == 0 ? [0] : count.isMultiple(of: 2) ? pages : pages + [1]))
        _ = try await administrator.addKey()
        // Progress is reported before the first step, and after each.
        let steps = Mutex(0)
        let result = try await administrator.rekey { _ in steps.withLock { $0 += 1 } }
        #expect(result.tokens == count && result.rekeyed == count && result.unreadable == 0)
        // The last step may find nothing.
        #expect(steps.withLock(\.self) == 2 + count / 2)
        #expect(try await administrator.verify { _ in }.isSound)
    }
}
