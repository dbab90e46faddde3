#if PostgreSQL
import Foundation
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct AdministrationTests {
    @Test func `the statistics say what the store holds, and where`() async throws {
        let store = try TestAdministration()
        try await store.put([("a", "1"), ("b", "2")])
        _ = try await store.administrator.handle.remove([Array("a".utf8)])[0].get()
        let statistics = try await store.administrator.statistics()
        #expect(statistics.tokens == 1 && statistics.tokensAreEstimated == false)
        #expect(statistics.schemaVersion == Schema.version)
        #expect(statistics.newestKey == 1 && statistics.databaseBytes ?? 0 > 0)
        #expect(
            statistics.software.hasPrefix("PostgreSQL 1") && statistics.place.contains(store.database.cluster.folder))
    }

    @Test func `pages have every token once, and fewer of large ones`() async throws {
        let store = try TestAdministration()
        let long = String(repeating: "x", count: 1 << 20)
        try await store.put((0..<10).map { ("long\($0)", long) } + (0..<95).map { ("id\($0)", "\($0)") })
        _ = try await store.administrator.handle.remove([Array("id94".utf8)])[0].get()
        var (cursor, found, largest) = (nil as String?, [[UInt8]](), 0)
        repeat {
            let page = try await store.administrator.page(after: cursor, limit: 1_000)
            let tokens = try page.entries.map { try $0.token.get() }
            found += tokens.map(\.id)
            largest = max(largest, tokens.reduce(0) { $0 + $1.info.count })
            cursor = page.next
        } while cursor != nil
        #expect(found.count == 104 && Set(found).count == 104)
        #expect(largest <= WalkPace.bytes + (1 << 20) + 1_000)
    }

    @Test func `the estimate of a large table is marked as one`() async throws {
        let store = try TestAdministration()
        try store.database.sql(
            """
            INSERT INTO token (key, version, written_at, key_number, value)
            SELECT sha256(n::text::bytea), 1, 1, 1, ''::bytea FROM generate_series(1, 100500) AS n
            """,
            "INSERT INTO token (key, version, written_at, key_number) VALUES ('removed', 1, 1, 1)")
        // Counting stops at 100,001, even if PostgreSQL has no estimate yet.
        let least = try await store.administrator.statistics()
        #expect(least.tokensAreEstimated == true && least.tokens == 100_001)
        try store.database.sql("ANALYZE token")
        let estimated = try await store.administrator.statistics()
        #expect(estimated.tokensAreEstimated == true && estimated.tokens == 100_501)
    }
}
#endif
