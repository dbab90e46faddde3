import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct ListingTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }

    @Test("pages and steps end early when tokens are large", arguments: [0, 1, 2, 3, 4, 9])
    func largeTokens(_ count: Int) async throws {
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        let half = [UInt8](repeating: 65, count: WalkPace.bytes / 2)
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
        let report = try await administrator.walk { _ in }
        #expect(report.tokens == count && report.rekeyed == count && report.isSound)
        #expect(try await administrator.verify { _ in }.isSound)
    }
}
