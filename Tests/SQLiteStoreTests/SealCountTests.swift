import Cryptography
import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct SealCountTests {
    private let folder: TemporaryDirectory
    private let data: String

    init() throws {
        folder = try TemporaryDirectory()
        data = folder.path + "/data"
    }

    /// What the database of a store that nobody has open says of its keys.
    private func stored(_ number: Int = 1) throws -> Int64? {
        let connection = try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
        return try Schema.seals(of: connection)[number]
    }

    private func setStored(_ seals: Int64) throws {
        let connection = try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
        try connection.execute("INSERT OR REPLACE INTO seal VALUES (1, \(seals))")
    }

    private func replacing(
        isSealed: Bool = true, _ body: (OfflineSQLiteStore) throws(StoreError) -> StoreReplacement
    ) throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        options.isSealed = isSealed
        _ = try body(try OfflineSQLiteStore(directory: data, options: options) { _ in })
    }

    @Test("each seal has a number of its own, and behind the last one there is none")
    func numbers() throws {
        let count = SealCount(keyNumber: 7)
        #expect(try (1...3).map { _ in try count.take() } == [1, 2, 3])
        count.raise(to: SealCounts.limit - 1)
        count.raise(to: 5)
        #expect(!count.isExhausted)
        #expect(try count.take() == SealCounts.limit)
        for _ in 0..<3 { #expect(throws: SealingError.exhausted(keyNumber: 7)) { try count.take() } }
        #expect(count.isExhausted && count.value == SealCounts.limit)
        for wild in [Int64.min, -1, 0] {
            let other = SealCount(keyNumber: 1)
            other.raise(to: wild)
            #expect(try other.take() == 1)
        }
    }

    @Test("counts of the same ring only grow, those of another ring begin anew")
    func rings() throws {
        let (seals, keys) = (SealCounts(), [try SecretKey.random(), try .random()])
        seals.load([1: 10, 2: 20], of: keys[0])
        seals.load([1: 5, 2: 25], of: keys[0])
        #expect(seals.count(of: 1).value == 10 && seals.count(of: 2).value == 25)
        seals.load([1: 3], of: keys[1])
        #expect(seals.count(of: 1).value == 3 && seals.count(of: 2).value == 0)
    }

    @Test("the stored number is ahead of what is committed, so that a crash counts too many and not too few")
    func ahead() throws {
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
        let connection = try SQLiteConnection(path: data + "/tokens.db", mode: .readWriteCreate)
        try Schema.create(connection)
        let seals = SealCounts()
        let writer = try WriterConnection(
            connection, options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data)),
            seals: seals)
        let count = seals.count(of: 1)
        let other = seals.count(of: 2)
        var writes = 0
        var last: Int64 = 0
        for _ in 0..<1_000 {
            for _ in 0..<200 { _ = try count.take() }
            _ = try writer.commit([])
            let stored = try #require(try Schema.seals(of: connection)[1])
            #expect(stored >= count.value && stored <= count.value + SealCounts.step)
            if stored != last { (writes, last) = (writes + 1, stored) }
        }
        #expect(writes <= 7, "most commits write nothing more")
        #expect(try Schema.seals(of: connection)[2] == nil, "a key that does not seal is left alone")
        _ = try other.take()
        // What is rolled back is written again.
        #expect(throws: SQLiteError.self) {
            try writer.transaction { () throws(SQLiteError) in throw .damaged("a fault") }
        }
        #expect(try Schema.seals(of: connection)[2] == nil)
        _ = try writer.commit([])
        #expect(try Schema.seals(of: connection)[2] == 1 + SealCounts.step)
        try writer.storeCounts()
        #expect(try Schema.seals(of: connection) == [1: 200_000, 2: 1])
    }

    @Test("a store counts on after it was closed, a rekeying included, and at the limit it takes no token")
    func limit() async throws {
        let events = Events()
        let first = try SQLiteTokenStore(at: data)
        var handle = try await ConformanceHandle.open(first)
        for number in 0..<5 { try await handle.put("\(number)", under: "id") }
        #expect(try await SQLiteAdministrator(first).keys().map(\.seals) == [5])
        first.close()
        #expect(try stored() == 5)
        try setStored(SealCounts.limit - 2)
        let second = try SQLiteTokenStore(at: data, events: events)
        handle = try await ConformanceHandle.open(second)
        let administrator = SQLiteAdministrator(second)
        for number in 5..<7 { try await handle.put("\(number)", under: "id") }
        await #expect(throws: StoreError.sealing(.exhausted(keyNumber: 1))) { try await handle.put("7", under: "id") }
        await #expect(throws: StoreError.sealing(.exhausted(keyNumber: 1))) { try await administrator.rekey { _ in } }
        #expect(try await handle.get("id") == "6")
        for _ in 0..<1_000 where events.all.isEmpty { try await Task.sleep(for: .milliseconds(10)) }
        // The count is looked at once a second: on a busy machine, between the two writes.
        let counts = SealCounts.limit - 2...SealCounts.limit
        #expect(events.all.count == 1 && counts.contains { events.all == [.manySeals(keyNumber: 1, count: $0)] })
        #expect(try await administrator.addKey().seals == 0)
        try await handle.put("8", under: "id")
        try await handle.put("9", under: "other")
        #expect(try await administrator.rekey { _ in }.rekeyed == 0)
        #expect(try await administrator.keys().map(\.seals) == [SealCounts.limit, 2])
        second.close()
        #expect(try stored() == SealCounts.limit && stored(2) == 2)
    }

    @Test("a restore, a way into the clear and back again, and a rekeying forget no seal")
    func replacements() async throws {
        let store = try SQLiteTokenStore(at: data)
        let administrator = SQLiteAdministrator(store)
        for number in 0..<10 { _ = await administrator.store([(Token(id: [65], info: [UInt8(number)]), nil)]) }
        let backup = folder.path + "/backup"
        _ = try await administrator.backUp(to: backup) { _ in }
        for number in 0..<7 { _ = await administrator.store([(Token(id: [66], info: [UInt8(number)]), nil)]) }
        store.close()
        try replacing { (store) throws(StoreError) in try store.convert(isSealed: false) { _ in } }
        #expect(try stored() == 17)
        try replacing { (store) throws(StoreError) in try store.convert(isSealed: true) { _ in } }
        #expect(try stored() == 19)
        try replacing { (store) throws(StoreError) in try store.restore(backup) { _ in } }
        // The backup has the number that was ahead.
        #expect(try stored() == 1 + SealCounts.step)
        try setStored(5 * SealCounts.step)
        try replacing { (store) throws(StoreError) in try store.restore(backup) { _ in } }
        #expect(try stored() == 5 * SealCounts.step)
        let restored = try SQLiteTokenStore(at: data)
        defer { restored.close() }
        #expect(try await ConformanceHandle.open(restored).get("A") != nil)
    }

    @Test("a number in the table that nothing can have sealed stops no write")
    func wildNumbers() async throws {
        for (wild, stored) in [(Int64.min, 1), (-1, 1), (.max, SealCounts.limit)] {
            let store = try SQLiteTokenStore(at: data)
            store.close()
            try setStored(wild)
            let again = try SQLiteTokenStore(at: data)
            let handle = try await ConformanceHandle.open(again)
            if wild < 0 { try await handle.put("1", under: "id") }
            again.close()
            #expect(try self.stored() == stored)
        }
    }

    @Test("a restore counts the seals of a WAL that a crash has left, also when the database itself is still empty")
    func restoreBesideLog() async throws {
        let store = try SQLiteTokenStore(at: data)
        let administrator = SQLiteAdministrator(store)
        let backup = folder.path + "/backup"
        _ = try await administrator.backUp(to: backup) { _ in }
        // Without its WAL the database of the crashed store has no tables.
        let crashed = folder.path + "/crashed"
        try FileManager.default.createDirectory(atPath: crashed, withIntermediateDirectories: true)
        try FileManager.default.copyItem(atPath: data + "/keys", toPath: crashed + "/keys")
        let connection = try SQLiteConnection(path: folder.path + "/new.db", mode: .readWriteCreate)
        try connection.execute("PRAGMA journal_mode = WAL")
        try Schema.create(connection)
        let identity = try KeyRingFile(path: "", credentials: nil, directory: data).load()?.identity()
        let update = try SQLiteStatement("UPDATE store SET key_ring = ?1", on: connection)
        try update.withBinding(try #require(identity), at: 1) { () throws(SQLiteError) in _ = try update.step() }
        try Schema.raiseSeals([1: 1_000_000], in: connection)
        for suffix in ["", "-wal"] {
            try FileManager.default.copyItem(
                atPath: folder.path + "/new.db\(suffix)", toPath: crashed + "/tokens.db\(suffix)")
        }
        store.close()
        let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: crashed))
        do {
            _ = try OfflineSQLiteStore(directory: crashed, options: options) { _ in }.restore(backup) { _ in }
        }
        let restored = try SQLiteConnection(path: crashed + "/tokens.db", mode: .readWrite)
        #expect(try Schema.seals(of: restored)[1] == 1_000_000)
    }
}
