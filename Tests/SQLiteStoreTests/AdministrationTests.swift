import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct AdministrationTests {
    private let folder: TemporaryDirectory
    private let data: String

    init() throws {
        folder = try TemporaryDirectory()
        data = folder.path + "/data"
    }

    private func token(_ id: String, _ info: String) -> (token: Token, writtenAt: Int64?) {
        (Token(id: Array(id.utf8), info: Array(info.utf8)), nil)
    }

    private func fill(_ administrator: StoreAdministrator, _ numbers: Range<Int>) async {
        let outcomes = await administrator.store(numbers.map { token("id\($0)", "info\($0)") })
        #expect(outcomes.allSatisfy { (try? $0.get()) != nil })
    }

    private func info(_ administrator: StoreAdministrator, _ id: String) async throws -> String? {
        try await administrator.fetch(Array(id.utf8)).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Where tokens lie, by their ids.
    private func slots(_ administrator: StoreAdministrator) async throws -> [String: Int64] {
        var slots: [String: Int64] = [:]
        for entry in try await administrator.page(after: 0, limit: 1_000).entries {
            slots[String(decoding: try entry.token.get().id, as: UTF8.self)] = entry.slot
        }
        return slots
    }

    @Test("a full page is the last one when nothing is behind it", arguments: [0, 9, 10, 11, 20])
    func lastPage(_ count: Int) async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        await fill(administrator, 0..<count)
        let page = try await administrator.page(after: 0, limit: 10)
        #expect(page.entries.count == min(count, 10) && page.isLast == (count <= 10))
        guard let last = page.entries.last, !page.isLast else { return }
        let next = try await administrator.page(after: last.slot, limit: 10)
        #expect(next.entries.count == count - 10 && next.isLast)
    }

    @Test("tokens are stored, listed in pages, and removed", arguments: [true, false])
    func tokens(_ isSealed: Bool) async throws {
        let store = try SQLiteTokenStore(at: data) { $0.isSealed = isSealed }
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        await fill(administrator, 0..<25)
        #expect(try await info(administrator, "id7") == "info7")
        #expect(try await administrator.statistics().tokens == 25)
        var found: [String] = []
        var slot: Int64 = 0
        while true {
            let page = try await administrator.page(after: slot, limit: 10)
            #expect(page.entries.count <= 10)
            found += try page.entries.map { String(decoding: try $0.token.get().id, as: UTF8.self) }
            guard !page.isLast, let last = page.entries.last else { break }
            slot = last.slot
        }
        #expect(found.sorted() == (0..<25).map { "id\($0)" }.sorted())
        #expect(try await administrator.remove([Array("id7".utf8), Array("nobody".utf8)]) == 1)
        #expect(try await info(administrator, "id7") == nil)
        #expect(try await administrator.statistics().tokens == 24)
        #expect(try await administrator.verify { _ in }.isSound)
    }

    @Test("pages and steps end early when tokens are large", arguments: [0, 1, 2, 3, 4, 9])
    func largeTokens(_ count: Int) async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        let half = [UInt8](repeating: 65, count: Committer.stepBytes / 2)
        let outcomes = await administrator.store((0..<count).map { (Token(id: [UInt8(65 + $0)], info: half), nil) })
        for outcome in outcomes { try outcome.get() }
        var (slot, sizes): (Int64, [Int]) = (0, [])
        while true {
            let page = try await administrator.page(after: slot, limit: 100)
            sizes.append(page.entries.count)
            guard !page.isLast, let last = page.entries.last else { break }
            slot = last.slot
        }
        let pages = [Int](repeating: 2, count: count / 2)
        #expect(sizes == (count == 0 ? [0] : count.isMultiple(of: 2) ? pages : pages + [1]))
        _ = try await administrator.addKey()
        // Each step tells how far it is, and before the first there is none.
        let steps = Mutex(0)
        let result = try await administrator.rekey { _ in steps.withLock { $0 += 1 } }
        #expect(result.tokens == count && result.resealed == count && result.unreadable == 0)
        #expect(steps.withLock(\.self) == 1 + sizes.count)
        #expect(try await administrator.verify { _ in }.isSound)
    }

    @Test("the time of writing is kept where it is given")
    func times() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        _ = await administrator.store([(Token(id: [65], info: [66]), 1_234_567)])
        #expect(try await administrator.page(after: 0, limit: 10).entries.map(\.writtenAt) == [1_234_567])
    }

    @Test("a new key seals, the old one opens until everything is sealed anew, and only then can be retired")
    func keys() async throws {
        let store = try SQLiteTokenStore(at: data)
        let administrator = StoreAdministrator(store)
        await fill(administrator, 0..<450)
        #expect(try await administrator.addKey().number == 2)
        await fill(administrator, 440..<460)
        #expect(try await info(administrator, "id1") == "info1")
        #expect(try await info(administrator, "id450") == "info450")
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 1) }
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 2) }
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 3) }
        let result = try await administrator.rekey { _ in }
        #expect(result.tokens == 460 && result.resealed == 440 && result.unreadable == 0)
        #expect(try await administrator.rekey { _ in }.resealed == 0)
        try await administrator.retireKey(numbered: 1)
        #expect(try await administrator.keys().map(\.number) == [2])
        #expect(try await administrator.verify { _ in }.isSound)
        store.close()
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        #expect(try await info(StoreAdministrator(again), "id1") == "info1")
    }

    @Test("a key that is added while another one is being retired stays, and one is retired at a time")
    func addingWhileRetiring() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        for _ in 2...3 { _ = try await administrator.addKey() }
        let gate = DispatchSemaphore(value: 0)
        let commit = Task { try await store.writer.perform { (_) throws(SQLiteError) in gate.wait() } }
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

    @Test("a key ring's file without a key that is in use, or with another of its number, is not gone on with")
    func oldKeyRing() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
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
        _ = try await StoreAdministrator(store).addKey()
        #expect(try file.load()?.keys.count == 2)
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: data + "/keys") == file.path)
    }

    @Test("fewer tokens than the store tells of, or more, stop nothing", arguments: [0, 1, 7])
    func wrongCount(_ count: Int) async throws {
        let first = try SQLiteTokenStore(at: data)
        await fill(StoreAdministrator(first), 0..<5)
        first.close()
        try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite)
            .execute("UPDATE store SET tokens = \(count)")
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        #expect(try await !administrator.verify { _ in }.isSound)
        #expect(try await administrator.remove((0..<3).map { Array("id\($0)".utf8) }) == 3)
        #expect(try await administrator.statistics().tokens == max(0, count - 3))
        #expect(try await info(administrator, "id4") == "info4")
    }

    @Test("a statement that takes long ends with its task", .timeLimit(.minutes(1)), arguments: [0, 100])
    func interruption(milliseconds: Int) async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        let task = Task { try await administrator.countForEver() }
        try await Task.sleep(for: .milliseconds(milliseconds))
        task.cancel()
        await #expect(throws: StoreError.self) { try await task.value }
        // The connection is as good as before.
        #expect(try await administrator.verify { _ in }.isSound)
    }

    @Test("a log that cannot be opened is not taken for none")
    func unreadableLog() throws {
        try FileManager.default.createDirectory(atPath: data + "/tokens.db-wal", withIntermediateDirectories: true)
        #expect(throws: SQLiteError.self) { try DatabaseFile(path: data + "/tokens.db").rewriteLog() }
        try DatabaseFile(path: data + "/other.db").rewriteLog()
    }

    @Test("a session seals with the new key from then on and opens what either has sealed")
    func keysOfSessions() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        let session = try await SessionActor.open(store)
        try await session.put("one", under: "1")
        _ = try await administrator.addKey()
        try await session.put("two", under: "2")
        #expect(try await session.get("1") == "one")
        #expect(try await session.get("2") == "two")
        _ = try await administrator.rekey { _ in }
        try await administrator.retireKey(numbered: 1)
        #expect(try await session.get("1") == "one")
    }

    @Test("a row of a key that is being retired, or of another ring, is not written any more")
    func staleRows() async throws {
        let first = try KeyRing.random(createdAt: 1).addingKey(createdAt: 2)
        let sealing = Sealing(.sealed(first))
        var coder = RowCoder(sealing)
        let row = try coder.row(of: Token(id: [65], info: [66]))
        #expect(sealing.acceptance.accepts(row))
        sealing.retiring.store(2, ordering: .releasing)
        #expect(!sealing.acceptance.accepts(row))
        sealing.retiring.store(0, ordering: .releasing)
        sealing.replace(.sealed(try first.addingKey(createdAt: 3)))
        #expect(sealing.acceptance.accepts(row))
        sealing.replace(.sealed(try first.addingKey(createdAt: 3).removingKey(numbered: 2)))
        #expect(!sealing.acceptance.accepts(row))
        sealing.replace(.sealed(try KeyRing.random(createdAt: 1).addingKey(createdAt: 2)))
        #expect(!sealing.acceptance.accepts(row))
        let clear = Sealing(.clear(index: try .random()))
        var plain = RowCoder(clear)
        let plainRow = try plain.row(of: Token(id: [65], info: [66]))
        #expect(clear.acceptance.accepts(plainRow))
        #expect(!sealing.acceptance.accepts(plainRow))
        clear.replace(.clear(index: try .random()))
        #expect(!clear.acceptance.accepts(plainRow))
    }

    @Test("a row's slot is always that of the key it names, also when the keys change meanwhile")
    func changingKeys() async throws {
        let keys = [try SecretKey.random(), try SecretKey.random()]
        let sealing = Sealing(.clear(index: keys[0]))
        let token = Token(id: Array("id".utf8), info: [1])
        var slots: [ObjectIdentifier: Int64] = [:]
        for key in keys {
            var coder = RowCoder(Sealing(.clear(index: key)))
            slots[key.identity] = try coder.row(of: token).key.firstSlot
        }
        let changes = Task.detached {
            while !Task.isCancelled { for key in keys { sealing.replace(.clear(index: key)) } }
        }
        var coder = RowCoder(sealing)
        for _ in 0..<100_000 {
            let row = try coder.row(of: token)
            guard slots[row.index] == row.key.firstSlot else {
                Issue.record("the slot is of another key")
                break
            }
        }
        changes.cancel()
        await changes.value
    }

    @Test("rows that do not open are counted, and fail by themselves")
    func unreadable() async throws {
        let first = try SQLiteTokenStore(at: data)
        await fill(StoreAdministrator(first), 0..<10)
        let slots = try await slots(StoreAdministrator(first))
        first.close()
        let (zero, one, two) = (try #require(slots["id0"]), try #require(slots["id1"]), try #require(slots["id2"]))
        try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite).execute(
            """
            UPDATE token SET value = (SELECT value FROM token WHERE slot = \(one)) WHERE slot = \(zero);
            UPDATE token SET key_number = 9 WHERE slot = \(two);
            """
        )
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        await #expect(throws: StoreError.sealing(.tampered(keyNumber: 1))) { try await info(administrator, "id0") }
        await #expect(throws: StoreError.sealing(.missingKey(number: 9))) { try await info(administrator, "id2") }
        #expect(try await info(administrator, "id1") == "info1")
        #expect(try await administrator.statistics().unreadableReads == 2)
        let verification = try await administrator.verify { _ in }
        #expect(!verification.isSound)
        #expect(verification.tokens == 10 && verification.unreadable.values.reduce(0, +) == 2)
        _ = try await administrator.addKey()
        let result = try await administrator.rekey { _ in }
        #expect(result.resealed == 8 && result.unreadable == 2)
        // What does not open can be written anew.
        await fill(administrator, 0..<3)
        #expect(try await administrator.verify { _ in }.isSound)
    }

    @Test("the wrong key ring, a missing one and the wrong kind of store stop the start, and change nothing")
    func wrongRing() async throws {
        let first = try SQLiteTokenStore(at: data)
        await fill(StoreAdministrator(first), 0..<3)
        first.close()
        let ring = KeyRingFile(path: folder.path + "/other", credentials: nil, directory: data)
        #expect(throws: SQLiteOpenError.keyRing(.missing(path: ring.path))) {
            try SQLiteTokenStore(at: data) { $0.keyRing = ring }
        }
        #expect(!FileManager.default.fileExists(atPath: ring.path))
        try ring.save(KeyRing.random(createdAt: 1))
        #expect(throws: SQLiteOpenError.keyRing(.ofAnotherStore(path: ring.path))) {
            try SQLiteTokenStore(at: data) { $0.keyRing = ring }
        }
        #expect(throws: SQLiteOpenError.sealed(path: data + "/tokens.db")) {
            try SQLiteTokenStore(at: data) { $0.isSealed = false }
        }
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        #expect(try await info(StoreAdministrator(again), "id1") == "info1")
    }

    @Test("the first start makes a key ring and says so, a later one does not; in the clear there is none")
    func firstStart() throws {
        let events = Events()
        try SQLiteTokenStore(at: data, events: events).close()
        try SQLiteTokenStore(at: data, events: events).close()
        #expect(events.all == [.madeKeyRing(path: data + "/keys")])
        try SQLiteTokenStore(at: folder.path + "/clear", events: events) { $0.isSealed = false }.close()
        #expect(events.all.count == 1)
        #expect(!FileManager.default.fileExists(atPath: folder.path + "/clear/keys"))
    }

    @Test("a store is sealed and put in the clear again, with all of its tokens and their times")
    func conversion() async throws {
        let first = try SQLiteTokenStore(at: data) { $0.isSealed = false }
        let tokens = (0..<2_500).map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64?(7)) }
        _ = await StoreAdministrator(first).store(tokens)
        first.close()
        for isSealed in [true, false] {
            var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
            options.isSealed = isSealed
            let replacement = try StoreReplacement(directory: data, options: options) { _ in }
            #expect(try replacement.convert(isSealed: isSealed) { _ in }.tokens == 2_500)
            #expect(throws: StoreError.self) { try replacement.convert(isSealed: isSealed) { _ in } }
            _ = consume replacement
            let store = try SQLiteTokenStore(at: data) { $0.isSealed = isSealed }
            let administrator = StoreAdministrator(store)
            #expect(try await info(administrator, "id2499") == "info2499")
            #expect(try await administrator.page(after: 0, limit: 5).entries.map(\.writtenAt) == [7, 7, 7, 7, 7])
            let verification = try await administrator.verify { _ in }
            #expect(verification.isSound && verification.tokens == 2_500)
            store.close()
            let file = try Data(contentsOf: URL(filePath: data + "/tokens.db"))
            #expect((file.range(of: Data("info1234".utf8)) == nil) == isSealed)
            #expect(try FileManager.default.contentsOfDirectory(atPath: data).allSatisfy { !$0.contains(".new") })
        }
    }

    @Test("a backup is the store as of one moment, and can be restored; what came later is gone then")
    func backup() async throws {
        let path = folder.path + "/backup.db"
        let store = try SQLiteTokenStore(at: data)
        let administrator = StoreAdministrator(store)
        await fill(administrator, 0..<3_000)
        let seen = Mutex(0)
        let writing = Task { [administrator] in
            for number in 3_000..<3_050 { await fill(administrator, number..<(number + 1)) }
        }
        let backup = try await administrator.backUp(to: path) { progress in seen.withLock { $0 = progress.total } }
        await writing.value
        #expect(backup.tokens >= 3_000 && seen.withLock { $0 } > 0)
        await fill(administrator, 4_000..<4_100)
        store.close()
        #expect(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o600)
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        let replacement = try StoreReplacement(directory: data, options: options) { _ in }
        #expect(try replacement.restore(path) { _ in }.tokens == backup.tokens)
        _ = consume replacement
        options.isSealed = true
        let again = try SQLiteTokenStore(at: data)
        defer { again.close() }
        let restored = StoreAdministrator(again)
        #expect(try await info(restored, "id2999") == "info2999")
        #expect(try await info(restored, "id4000") == nil)
        #expect(try await restored.verify { _ in }.isSound)
    }

    @Test("what cannot be restored leaves the store as it was")
    func refusedRestores() async throws {
        let first = try SQLiteTokenStore(at: data)
        await fill(StoreAdministrator(first), 0..<3)
        first.close()
        let other = try SQLiteTokenStore(at: folder.path + "/other")
        await fill(StoreAdministrator(other), 0..<2_000)
        _ = try await StoreAdministrator(other).backUp(to: folder.path + "/sealed otherwise") { _ in }
        other.close()
        try Data("no database".utf8).write(to: URL(filePath: folder.path + "/text"))
        try SQLiteConnection(path: folder.path + "/foreign", mode: .readWriteCreate).execute("CREATE TABLE t (a)")
        var damaged = try Data(contentsOf: URL(filePath: data + "/tokens.db"))
        damaged.replaceSubrange(4_096..<8_192, with: Data(repeating: 0xff, count: 4_096))
        try damaged.write(to: URL(filePath: folder.path + "/damaged"))
        for name in ["none", "text", "foreign", "damaged", "sealed otherwise"] {
            let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
            let replacement = try StoreReplacement(directory: data, options: options) { _ in }
            do throws(StoreError) {
                _ = try replacement.restore(folder.path + "/" + name) { _ in }
                Issue.record("\(name) was restored")
            } catch {
                #expect(error.description.contains(folder.path + "/" + name) || name == "sealed otherwise", "\(error)")
            }
        }
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        #expect(try await info(StoreAdministrator(store), "id1") == "info1")
        #expect(
            Set(try FileManager.default.contentsOfDirectory(atPath: data)).isSubset(
                of: ["keys", "lock", "tokens.db", "tokens.db-wal"]))
    }
}

extension StoreAdministrator {
    /// On the administrator's own thread, as everything that takes long.
    fileprivate func countForEver() async throws(StoreError) -> Int {
        let connection = try reader().connection
        return try await readingForLong(connection) { () throws(SQLiteError) in
            try connection.integer(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
        }
    }
}
