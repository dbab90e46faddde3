#if PostgreSQL
import Foundation
import System
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// A store, opened as a server opens it, with a key ring in its own folder.
final class TestServer: Sendable {
    let database: TestDatabase
    let folder: TemporaryDirectory
    let events = TestAdministration.Events()
    let store: PostgresTokenStore

    /// - Parameters:
    ///   - database: May be shared with other servers.
    ///   - folder: Has a key ring; nil for a new folder.
    ///   - interval: The time between two looks at what servers have agreed on. They begin with the first handle.
    init(
        _ database: TestDatabase, folder: TemporaryDirectory? = nil,
        lookingEvery interval: Duration = .milliseconds(100)
    ) throws {
        let folder = folder ?? TemporaryDirectory()
        let events = events
        self.database = database
        self.folder = folder
        store = try Self.provider(database, folder) { events.add($0) }
            .open(lookingEvery: interval)
    }

    static func provider(
        _ database: TestDatabase, _ folder: TemporaryDirectory, waits: Bool = false, makesKeyRing: Bool = true,
        report: @escaping @Sendable (StoreEvent) -> Void = { _ in }
    ) -> PostgresStoreProvider {
        var options = StoreOptions(keyRing: ringFile(folder))
        options.report = report
        (options.isServing, options.makesKeyRing) = (waits, makesKeyRing)
        var postgres = database.options()
        postgres.connections = 1
        return PostgresStoreProvider(postgres, options: options)
    }

    static func ringFile(_ folder: TemporaryDirectory) -> KeyRingFile {
        KeyRingFile(path: "", credentials: nil, directory: folder.path)
    }

    /// A folder with a copy of this server's key ring.
    func copyOfRing() throws -> TemporaryDirectory {
        let copy = TemporaryDirectory()
        try copyRing(to: copy)
        return copy
    }

    func copyRing(to folder: TemporaryDirectory) throws {
        let ring = try #require(try Self.ringFile(self.folder).load())
        try Self.ringFile(folder).save(ring)
    }

    var keys: any KeyRingAdministrator {
        get throws { try #require(store.administrator.keyRing) }
    }

    func put(_ info: String, under id: String) async throws {
        let token = Token(id: Array(id.utf8), info: Array(info.utf8))
        for outcome in await store.administrator.handle.store([(token, nil)], keepsNewer: false) { try outcome.get() }
    }

    /// Stores so many tokens, of which some fifteen fill a page, or which lie outside of the pages if they are long.
    func fill(_ count: Int, bytes: Int = 400) async throws {
        let info = [UInt8](repeating: 120, count: bytes)
        let tokens = (0..<count).map {
            (token: Token(id: Array("\($0)".utf8), info: info), writtenAt: Int64?.none)
        }
        for outcome in await store.administrator.handle.store(tokens, keepsNewer: false) { try outcome.get() }
    }

    func get(_ id: String) async throws -> String? {
        try await store.administrator.handle.fetch(Array(id.utf8)).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The number of the key that sealed the row of an id.
    func keyNumber(of id: String) async throws -> Int64? {
        try database.number("SELECT key_number FROM token WHERE key = \(store.state.key(of: id))")
    }

    /// Whether a text that begins like this was reported.
    func said(_ beginning: String) -> Bool {
        events.all.contains { $0.description.hasPrefix(beginning) }
    }
}
#endif
