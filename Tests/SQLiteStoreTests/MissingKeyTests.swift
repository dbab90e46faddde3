import Glibc
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// Key rings of a store that lack a key with which rows are sealed.
@Suite struct MissingKeyTests {
    private let folder = TemporaryDirectory()
    private var data: String { folder.path + "/data" }

    /// Makes a store of tokens that keys 1 and 2 have sealed; closed.
    private func makeStore(ofFirst: Int, ofSecond: Int) async throws -> KeyRingFile {
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<ofFirst)
        _ = try await administrator.addKey()
        await administrator.fill(ofFirst..<ofFirst + ofSecond)
        return store.options.keyRing
    }

    @Test("after a round of the walk, an administrator and an examiner know a key of few tokens too")
    func found() async throws {
        let file = try await makeStore(ofFirst: 1, ofSecond: 500)
        try file.save(#require(try file.load()).removingKey(numbered: 1))
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        #expect(try await SQLiteAdministrator(store).walk { _ in }.missingKeys == [1])
        #expect(SQLiteAdministrator(store).missingKeys() == [1])
        store.close()
        #expect(try SQLiteStoreProvider(examining: data).examine()?.sealing?.keyNumbers == [1, 2])
    }

    @Test("no key is added to a ring that lacks a later one, whose number it would get")
    func reused() async throws {
        let file = try await makeStore(ofFirst: 5, ofSecond: 50)
        let whole = try #require(try file.load())
        try file.save(KeyRing(index: whole.index, keys: [whole.keys[0]]))
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await #expect(throws: StoreError.self) { try await administrator.addKey() }
        try file.save(whole)
        #expect(try await administrator.addKey().number == 3)
    }

    @Test("a key that is back in the ring's file when it is read again is not missing any more")
    func putBack() async throws {
        let file = try await makeStore(ofFirst: 50, ofSecond: 50)
        let whole = try #require(try file.load())
        try file.save(whole.removingKey(numbered: 1))
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        _ = try await SQLiteAdministrator(store).walk { _ in }
        #expect(store.metrics.missingKeys == [1])
        try file.save(whole)
        _ = try await SQLiteAdministrator(store).addKey()
        #expect(store.metrics.missingKeys == [])
    }

    @Test("a key that was missing in the last round, and is back, is not taken for unused")
    func missingThenRetired() async throws {
        let first = try SQLiteTokenStore(at: data) { $0.isServing = false }
        var administrator = SQLiteAdministrator(first)
        await administrator.fill(0..<5)
        _ = try await administrator.addKey()
        let file = first.options.keyRing
        first.close()
        let whole = try #require(try file.load())
        try file.save(whole.removingKey(numbered: 1))
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        administrator = SQLiteAdministrator(store)
        #expect(try await administrator.walk { _ in }.missingKeys == [1])
        try file.save(whole)
        await #expect(throws: StoreError.self) { try await administrator.retireKey(numbered: 1) }
        #expect(try await administrator.info("id0") == "info0")
    }

    /// Makes a closed store with rows of two keys, and perhaps a backup of it; returns the ring as it was with one key.
    private func makeStoreOfTwoKeys(backup: String? = nil) async throws -> KeyRing {
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<5)
        let early = try #require(try store.options.keyRing.load())
        _ = try await administrator.addKey()
        await administrator.fill(5..<10)
        if let backup { _ = try await administrator.backUp(to: backup) { _ in } }
        return early
    }

    /// Expects that no key is added to a ring that was set back.
    private func expectNoNewKey(_ early: KeyRing) async throws {
        try StoreOptions(in: data).keyRing.save(early)
        let store = try SQLiteTokenStore(at: data) { $0.isServing = false }
        defer { store.close() }
        await #expect(throws: StoreError.self) { try await SQLiteAdministrator(store).addKey() }
    }

    @Test("no key gets the number of a missing one after a restore")
    func reusedAfterRestore() async throws {
        let early = try await makeStoreOfTwoKeys(backup: folder.path + "/backup")
        try StoreOptions(in: data).keyRing.save(early)
        let offline = try OfflineSQLiteStore(directory: data, options: StoreOptions(in: data))
        _ = try offline.restore(folder.path + "/backup", keepsSessions: false, lacksKeys: true) { _ in }
        offline.directory.unlock()
        try await expectNoNewKey(early)
    }

    @Test("no key gets the number of a missing one in a store of version 1.0 whose ring was set back")
    func reusedAfterUpgrade() async throws {
        let early = try await makeStoreOfTwoKeys()
        try SQLiteConnection(path: data + "/tokens.db", mode: .readWrite).execute("DELETE FROM walk")
        // Version 1.1 opens the upgraded store with the whole ring, walks, and is stopped.
        let upgraded = try SQLiteTokenStore(at: data) { $0.isServing = false }
        #expect(try await SQLiteAdministrator(upgraded).walk { _ in }.keyNumbers == [2])
        upgraded.close()
        try await expectNoNewKey(early)
    }
}
