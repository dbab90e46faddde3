#if PostgreSQL
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct AdministrationVerificationTests {
    private func store(tokens: Int) async throws -> TestAdministration {
        let store = try TestAdministration()
        try await store.put((0..<tokens).map { ("id\($0)", "info\($0)") })
        return store
    }

    @Test func `every row is opened, and the progress reaches the end`() async throws {
        let store = try await store(tokens: 1_203)
        try await store.begin("s1", of: "anna")
        _ = try await store.administrator.handle.remove([Array("id7".utf8)])[0].get()
        let last = Mutex<StoreProgress?>(nil)
        let found = try await store.administrator.verify { progress in last.withLock { $0 = progress } }
        #expect(found.isSound && found.tokens == 1_202 && found.unreadable.isEmpty)
        #expect(last.withLock(\.self) == StoreProgress(done: 1_202, total: 1_202))
    }

    @Test func `rows that do not open are counted by what is wrong with them`() async throws {
        let store = try await store(tokens: 10)
        for number in 0..<3 { try await store.begin("s\(number)", of: "anna") }
        let key = { (id: String) in store.state.key(of: id) }
        try store.database.allow(keys: 5)
        try store.database.sql(
            "UPDATE token SET value = set_byte(value, 30, 255 - get_byte(value, 30)) WHERE key = \(key("id1"))",
            "UPDATE token SET written_at = written_at + 1 WHERE key = \(key("id2"))",
            "UPDATE token SET key_number = 5 WHERE key = \(key("id3"))",
            "UPDATE token SET value = '' WHERE key = \(key("id4"))",
            """
            UPDATE session SET expires_at = expires_at + 1 WHERE key = (SELECT min(key::text)::bytea FROM session)
            """)
        let found = try await store.administrator.verify { _ in }
        #expect(!found.isSound && found.tokens == 10 && found.damages.isEmpty)
        #expect(
            found.unreadable == [
                "\(SealingError.tampered(keyNumber: 1))": 3, "\(SealingError.missingKey(number: 5))": 1,
                "\(SealingError.malformed)": 1,
            ])
        #expect(found.unreadableRows?.count == 5)
        let page = try await store.administrator.page(after: nil, limit: 100)
        #expect(page.entries.count { (try? $0.token.get()) == nil } == 4)
        await #expect(throws: StoreError.sealing(.missingKey(number: 5))) { _ = try await store.get("id3") }
        #expect(store.state.metrics.unreadableReads == 1)
    }

    @Test func `a verification ends with its task`() async throws {
        let store = try await store(tokens: 2_000)
        let task = Task {
            try await store.administrator.verify { _ in withUnsafeCurrentTask { $0?.cancel() } }
        }
        await #expect(throws: StoreError.refused("the walk was interrupted; it goes on at its own pace")) {
            try await task.value
        }
    }
}
#endif
