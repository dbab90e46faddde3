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
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<ofFirst)
        _ = try await administrator.addKey()
        await administrator.fill(ofFirst..<ofFirst + ofSecond)
        return store.options.keyRing
    }

    @Test("an administrator and an examiner find a key of few tokens too")
    func found() async throws {
        let file = try await makeStore(ofFirst: 1, ofSecond: 500)
        try file.save(#require(try file.load()).removingKey(numbered: 1))
        #expect(try SQLiteStoreProvider(examining: data).examine()?.sealing?.keyNumbers == [1, 2])
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        #expect(try await SQLiteAdministrator(store).missingKeys() == [1])
    }

    @Test("a database that cannot be opened again does not keep the keys from being listed")
    func unreadable() async throws {
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        // As if it were another user's now, which would not stop root.
        #expect(rename(store.path, store.path + ".away") == 0)
        let administrator = SQLiteAdministrator(store)
        #expect(try await administrator.missingKeys() == nil)
        #expect(try await administrator.keys().map(\.number) == [1])
    }

    @Test("no key is added to a ring that lacks a later one, whose number it would get")
    func reused() async throws {
        let file = try await makeStore(ofFirst: 5, ofSecond: 50)
        let whole = try #require(try file.load())
        try file.save(KeyRing(index: whole.index, keys: [whole.keys[0]]))
        let store = try SQLiteTokenStore(at: data)
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
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        #expect(store.metrics.missingKeys == [1])
        try file.save(whole)
        _ = try await SQLiteAdministrator(store).addKey()
        #expect(store.metrics.missingKeys == [])
    }
}
