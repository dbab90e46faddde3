import Cryptography
import Foundation
import StoreConformance
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct KeyAdministrationTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }

    @Test("keys that are added at the same time do not replace one another")
    func addedTogether() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let numbers = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<8 {
                group.addTask { try await store.administrator.keyRing?.addKey().number ?? 0 }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(numbers.sorted() == Array(2...9))
        #expect(try store.options.keyRing.load()?.keys.map(\.number) == Array(1...9))
    }

    @Test("a store with sessions and without tokens gets no new key ring in place of a missing one")
    func sessionsOnly() async throws {
        let first = try SQLiteTokenStore(at: data)
        try await WaitingHandle.open(first).begin("secret", of: "user")
        let ring = first.options.keyRing
        first.close()
        #expect(rename(ring.path, ring.path + ".away") == 0)
        #expect(throws: SQLiteOpenError.shared(.keyRing(.missing(path: ring.path)))) { try SQLiteTokenStore(at: data) }
        #expect(try SQLiteStoreProvider(examining: data).examine()?.sealing != nil)
        #expect(rename(ring.path + ".away", ring.path) == 0)
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        #expect(try await WaitingHandle.open(again).find("secret")?.user == Array("user".utf8))
    }

    @Test("a new key seals, the old one opens until everything is rekeyed, and only then can be retired")
    func keys() async throws {
        // Otherwise the store walks by itself, perhaps at once.
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<450)
        #expect(try await administrator.addKey().number == 2)
        await administrator.fill(440..<460)
        #expect(try await administrator.info("id1") == "info1")
        #expect(try await administrator.info("id450") == "info450")
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 1) }
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 2) }
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 3) }
        let report = try await administrator.walk { _ in }
        #expect(report.tokens == 460 && report.rekeyed == 440 && report.isSound && report.keyNumbers == [2])
        #expect(try await administrator.walk { _ in }.rekeyed == 0)
        try await administrator.retireKey(numbered: 1)
        #expect(try await administrator.keys().map(\.number) == [2])
        #expect(try await administrator.verify { _ in }.isSound)
        store.close()
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        #expect(try await SQLiteAdministrator(again).info("id1") == "info1")
    }

    @Test("a key that began to seal after the last round, and was replaced before the next, is not taken for unused")
    func replacedBetweenRounds() async throws {
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        _ = try await administrator.walk { _ in }
        _ = try await administrator.addKey()
        await administrator.fill(0..<1)
        _ = try await administrator.addKey()
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 2) }
        #expect(try await administrator.info("id0") == "info0")
        // A round that has begun and does not end shows nothing.
        await store.walker.begin()
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 2) }
        _ = try await administrator.walk { _ in }
        try await administrator.retireKey(numbered: 2)
        #expect(try await administrator.info("id0") == "info0")
    }

    @Test("whatever is done with keys and in whatever order, every row opens", arguments: 0..<12 as Range<UInt64>)
    func anyHistory(_ seed: UInt64) async throws {
        var generator = SeededGenerator(seed: seed)
        var store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        var stored = 0
        for _ in 0..<30 {
            let administrator = SQLiteAdministrator(store)
            // Beside what is done with the keys.
            let count = Int.random(in: 0...100, using: &generator)
            let numbers = stored..<(stored + count)
            async let filled: Void = administrator.fill(numbers)
            stored += count
            switch Int.random(in: -2..<8, using: &generator) {
            case ...1: _ = try await administrator.addKey()
            case 2: _ = try await administrator.walk { _ in }
            case 3: await store.walker.begin()
            case 4:
                let walk = Task { try await administrator.walk { _ in } }
                try await Task.sleep(for: .microseconds(Int.random(in: 0...2_000, using: &generator)))
                walk.cancel()
                _ = await walk.result
            case 5...6:
                for key in try await administrator.keys() { try? await administrator.retireKey(numbered: key.number) }
            default:
                await filled
                store.close()
                let isServing = Bool.random(using: &generator)
                store = try SQLiteTokenStore(at: data) { $0.isServing = isServing }
            }
            await filled
            for number in stride(from: 0, to: stored, by: 37) {
                #expect(try await SQLiteAdministrator(store).info("id\(number)") == "info\(number)")
            }
        }
        let administrator = SQLiteAdministrator(store)
        #expect(try await administrator.walk { _ in }.isSound)
        for key in try await administrator.keys() where !key.seals {
            try await administrator.retireKey(numbered: key.number)
        }
        let report = try await administrator.walk { _ in }
        #expect(report.isSound && report.tokens == stored && report.keyNumbers.count <= 1)
    }

    @Test("a ring that an earlier store in the folder has kept stays beside the one that is kept now")
    func retiredOfAnotherStore() async throws {
        for _ in 1...2 {
            let store = try SQLiteTokenStore(at: data)
            let administrator = SQLiteAdministrator(store)
            _ = try await administrator.addKey()
            _ = try await administrator.walk { _ in }
            try await administrator.retireKey(numbered: 1)
            #expect(try await administrator.keys().map(\.number) == [2])
            store.close()
            for name in try FileManager.default.contentsOfDirectory(atPath: data) where !name.contains("retired") {
                try FileManager.default.removeItem(atPath: data + "/" + name)
            }
        }
        let kept = try FileManager.default.contentsOfDirectory(atPath: data).map { name in
            try #require(
                try KeyRingFile(path: data + "/" + name, credentials: nil, directory: "").load()?.key(numbered: 1))
        }
        #expect(kept.count == 2 && !kept[0].hasBytes(of: kept[1]))
    }

    @Test("a key that is added while another one is being retired stays, and one is retired at a time")
    func addingWhileRetiring() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        for _ in 2...3 { _ = try await administrator.addKey() }
        _ = try await administrator.walk { _ in }
        let hasBegun = Atomic(false)
        let gate = DispatchSemaphore(value: 0)
        let commit = Task {
            try await store.perform { _ in
                hasBegun.store(true, ordering: .releasing)
                gate.wait()
            }
        }
        // Otherwise the retirement could be over before.
        while !hasBegun.load(ordering: .acquiring) { try await Task.sleep(for: .milliseconds(1)) }
        let retirement = Task { try await administrator.retireKey(numbered: 1) }
        while store.state.sealing.retiring.load(ordering: .acquiring) == 0 {
            try await Task.sleep(for: .milliseconds(1))
        }
        #expect(try await administrator.addKey().number == 4)
        await #expect(throws: StoreError.refused("another key is being retired; try again when that is done")) {
            try await administrator.retireKey(numbered: 2)
        }
        gate.signal()
        try await commit.value
        try await retirement.value
        #expect(try await administrator.keys().map(\.number) == [2, 3, 4])
        #expect(try store.options.keyRing.load()?.keys.map(\.number) == [2, 3, 4])
        try await administrator.retireKey(numbered: 2)
    }

    @Test("a key ring's file that lacks a key in use, or has another key with its number, is refused")
    func oldKeyRing() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        let file = store.options.keyRing
        let first = try #require(try file.load())
        _ = try await administrator.addKey()
        let second = try #require(try file.load())
        for stale in [first, try first.addingKey(createdAt: 1)] {
            try file.save(stale)
            await #expect(throws: StoreError.keyRing(.lacksKey(number: 2, path: file.path))) {
                _ = try await administrator.addKey()
            }
            await #expect(throws: StoreError.keyRing(.lacksKey(number: 2, path: file.path))) {
                try await administrator.retireKey(numbered: 1)
            }
        }
        try file.save(second)
        #expect(try await administrator.addKey().number == 3)
    }

    @Test("a key ring that a link leads to is changed where it is")
    func linkedKeyRing() async throws {
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
        let file = KeyRingFile(path: folder.path + "/ring", credentials: nil, directory: data)
        try file.save(KeyRing.random(createdAt: 1))
        try FileManager.default.createSymbolicLink(atPath: data + "/keys", withDestinationPath: file.path)
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        _ = try await SQLiteAdministrator(store).addKey()
        #expect(try file.load()?.keys.count == 2)
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: data + "/keys") == file.path)
    }

    @Test("a row sealed with a key that is being retired, or that was retired, is refused")
    func staleRows() throws {
        let first = try KeyRing.random(createdAt: 1).addingKey(createdAt: 2)
        let sealing = Sealing(first)
        var coder = RowCoder(sealing)
        let row = try coder.row(of: Token(id: [65], info: [66]))
        #expect(sealing.acceptance.accepts(keyNumber: row.keyNumber))
        sealing.retiring.store(2, ordering: .releasing)
        #expect(!sealing.acceptance.accepts(keyNumber: row.keyNumber))
        sealing.retiring.store(0, ordering: .releasing)
        sealing.replace(try first.addingKey(createdAt: 3))
        #expect(sealing.acceptance.accepts(keyNumber: row.keyNumber))
        sealing.replace(try first.addingKey(createdAt: 3).removingKey(numbered: 2))
        #expect(!sealing.acceptance.accepts(keyNumber: row.keyNumber))
    }

    @Test("a key is not taken for unused in the moment in which a round begins")
    func unusedWhileBeginning() async throws {
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        _ = try await administrator.walk { _ in }
        var retired = 0
        for round in 0..<100 {
            let number = try await administrator.addKey().number
            await administrator.fill(round..<round + 1)
            _ = try await administrator.addKey()
            async let begun = store.walker.begin()
            for _ in 0..<5 where retired == 0 {
                retired += (try? await administrator.retireKey(numbered: number)) == nil ? 0 : 1
            }
            _ = await begun
            guard retired == 0 else { break }
            _ = try await administrator.walk { _ in }
        }
        #expect(retired == 0)
        #expect(try await administrator.walk { _ in }.isSound)
    }
}
