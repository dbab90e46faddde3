import Dispatch
import Foundation
import Synchronization
import System
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct VerificationTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }

    @Test("a wrong count of tokens is found, and stops nothing", arguments: [0, 1, 7])
    func wrongCount(_ count: Int) async throws {
        let first = try SQLiteTokenStore(at: data)
        await SQLiteAdministrator(first).fill(0..<5)
        first.close()
        try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
            .execute("UPDATE store SET tokens = \(count)")
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        #expect(try await !administrator.verify { _ in }.isSound)
        let removed = await administrator.handle.remove((0..<3).map { Array("id\($0)".utf8) })
        #expect(removed == [.success(true), .success(true), .success(true)])
        #expect(try await administrator.statistics().tokens == max(0, count - 3))
        #expect(try await administrator.info("id4") == "info4")
    }

    @Test("the tokens of a store that nothing can be written to are counted")
    func withoutWriter() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<5)
        store.finishWrites()
        #expect(try await administrator.statistics().tokens == 5)
    }

    @Test func `writes beside a round of the walk neither make a store unsound nor the WAL grow`() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<1_201)
        async let first = administrator.walk { _ in }
        let removed = await administrator.handle.remove((0..<600).map { Array("id\($0)".utf8) })
        #expect(removed.allSatisfy { (try? $0.get()) == true })
        // Only a step holds a state of the database.
        #expect(try await store.perform { try $0.checkpoint(.truncate, waiting: 60_000, insists: true) } == .complete)
        let report = try await first
        #expect(report.isSound && (601...1_201).contains(report.tokens))
        #expect(try await administrator.walk { _ in }.tokens == 601)
    }

    @Test("a long statement ends when its task is cancelled", .timeLimit(.minutes(30)), arguments: [0, 100])
    func interruption(milliseconds: Int) async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        let task = Task { try await administrator.countForEver() }
        try await Task.sleep(for: .milliseconds(milliseconds))
        task.cancel()
        await #expect(throws: StoreError.self) { try await task.value }
        // The connection is as good as before.
        #expect(try await administrator.verify { _ in }.isSound)
    }

    @Test func `while a statement takes long, nothing else uses its connection`() async {
        let user = ConnectionUser()
        #expect(await !user.isUsedDuringLongRead(path: folder.path + "/other.db"))
    }

    @Test("a WAL that cannot be opened is not taken for a missing one")
    func unreadableLog() throws {
        try FileManager.default.createDirectory(atPath: data + "/tokens.db-wal", withIntermediateDirectories: true)
        #expect(throws: SQLiteError.self) { try StoreOpener.rewrite(data + "/tokens.db-wal") }
    }

    @Test("rows that do not open are counted, and fail by themselves")
    func unreadable() async throws {
        let first = try SQLiteTokenStore(at: data) { $0.isServing = false }
        await SQLiteAdministrator(first).fill(0..<10)
        let slots = try await SQLiteAdministrator(first).slots()
        _ = try await SQLiteAdministrator(first).addKey()
        first.close()
        let (zero, one, two) = (try #require(slots["id0"]), try #require(slots["id1"]), try #require(slots["id2"]))
        try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite).execute(
            """
            UPDATE token SET value = (SELECT value FROM token WHERE slot = \(one)) WHERE slot = \(zero);
            UPDATE token SET key_number = 9 WHERE slot = \(two);
            """
        )
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await #expect(throws: StoreError.sealing(.tampered(keyNumber: 1))) { try await administrator.info("id0") }
        await #expect(throws: StoreError.sealing(.missingKey(number: 9))) { try await administrator.info("id2") }
        #expect(try await administrator.info("id1") == "info1")
        #expect(try await administrator.statistics().unreadableReads == 2)
        let report = try await administrator.walk { _ in }
        #expect(report.rekeyed == 8 && report.unreadable.count == 2 && report.unreadableRows.count == 2)
        let verification = try await administrator.verify { _ in }
        #expect(!verification.isSound)
        #expect(verification.tokens == 10 && verification.unreadable.values.reduce(0, +) == 2)
        // What does not open can be written anew.
        await administrator.fill(0..<3)
        #expect(try await administrator.verify { _ in }.isSound)
    }
}

extension SQLiteAdministrator {
    /// On a thread of its own, as everything that takes long.
    fileprivate func countForEver() async throws(StoreError) -> Int {
        let connection = try reading { (connection) in connection }
        let count = await connection.interruptible { () throws(SQLiteError) in
            try connection.integer(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
        }
        return try StoreError.reading { () throws(SQLiteError) in try count.get() }
    }
}

/// An actor with a connection, which may be used on no other thread than its own.
private actor ConnectionUser {
    private let executor = BlockingExecutor(label: "connection")

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    private func use() {}

    /// Whether another call runs while a long read does.
    func isUsedDuringLongRead(path: String) async -> Bool {
        guard let connection = try? SQLiteConnection(path: path, mode: .readWriteCreate) else { return true }
        let isUsed = await connection.interruptible {
            let used = DispatchSemaphore(value: 0)
            Task {
                self.use()
                used.signal()
            }
            return used.wait(timeout: .now() + .milliseconds(300)) == .success
        }
        return (try? isUsed.get()) ?? true
    }
}
