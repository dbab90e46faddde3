#if PostgreSQL
import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// How a server goes on whose database cannot be reached when it starts.
@Suite struct StoreOpeningTests {
    /// A server's store whose database is at a Unix socket that is not there before `comeUp`.
    private final class LateServer: Sendable {
        let folder: TemporaryDirectory
        let events = TestAdministration.Events()
        let store: PostgresTokenStore
        private let database: TestDatabase
        private let place: TemporaryDirectory

        init(_ database: TestDatabase, keys folder: TemporaryDirectory? = nil) throws {
            let folder = try folder ?? TemporaryDirectory()
            let place = try TemporaryDirectory()
            let events = events
            let path = (place.path + "/socket").replacing("/", with: "%2F")
            let provider = TestServer.provider(
                database, folder, url: "postgresql://postgres@/\(database.name)?host=\(path)", waits: true)
            (self.database, self.folder, self.place) = (database, folder, place)
            store = try provider.open(TestServer.times) { events.add($0) }
        }

        func comeUp() throws {
            try FileManager.default.createSymbolicLink(
                atPath: place.path + "/socket", withDestinationPath: database.cluster.folder)
        }

        /// Waits until a condition is fulfilled.
        func until(_ condition: () -> Bool) async throws {
            while !condition() { try await Task.sleep(for: .milliseconds(5)) }
        }

        func said(_ part: String) -> Int { events.all.count { $0.description.contains(part) } }

        var hasRing: Bool { FileManager.default.fileExists(atPath: folder.path + "/keys") }

        func put(_ info: String, under id: String) async -> StoreError? {
            let token = Token(id: Array(id.utf8), info: Array(info.utf8))
            for outcome in await store.administrator.store([(token, nil)], keepsNewer: false) {
                if case .failure(let error) = outcome { return error }
            }
            return nil
        }
    }

    private static let unreachable = "the database cannot be reached, and clients are told"

    @Test func `a server without its database serves nobody, and makes no key ring, until the database is there`()
        async throws
    {
        let database = try TestDatabase()
        let server = try LateServer(database)
        defer { server.store.close() }
        let handle = try await ConformanceHandle.open(server.store)
        guard case .unavailable(let fault) = server.store.fault else {
            Issue.record("the fault is \(String(describing: server.store.fault))")
            return
        }
        #expect(fault.mayRetry && fault.description.contains("No such file or directory"))
        #expect(server.said(Self.unreachable) == 1)
        #expect(server.store.summary.hasSuffix("not connected yet, sealed"))
        await #expect(throws: StoreError.unavailable(fault)) { try await handle.put("1", under: "a") }
        await #expect(throws: StoreError.unavailable(fault)) { try await handle.get("a") }
        #expect(await server.put("1", under: "a") == .unavailable(fault))
        let ring = try #require(server.store.administrator.keyRing)
        await #expect(throws: StoreError.unavailable(fault)) { try await ring.keys() }
        #expect(!server.hasRing)

        try server.comeUp()
        try await server.until { server.store.fault == nil }
        #expect(server.hasRing && server.said("made the key ring") == 1 && server.said("connected to ") == 1)
        try await handle.put("2", under: "a")
        #expect(try await handle.get("a") == "2")
        #expect(try await ring.keys().map(\.number) == [1])
        #expect(await server.put("3", under: "a") == nil)
        #expect(try await handle.get("a") == "3")
        // Sealed, and by the ring of the file.
        #expect(try database.number("SELECT max(key_number) FROM token") == 1)
        #expect(server.said(Self.unreachable) == 1)
    }

    @Test func `what is wrong with a database that was not there at the start is said once, and can be mended`()
        async throws
    {
        let database = try TestDatabase()
        let first = try TestServer(database)
        defer { first.store.close() }
        try await first.put("token", under: "id")
        let folder = try TemporaryDirectory()
        try TestServer.ringFile(folder).save(try KeyRing.random(createdAt: 1))
        let server = try LateServer(database, keys: folder)
        defer { server.store.close() }
        let refusal = StoreOpenError.keyRing(.ofAnotherStore(path: folder.path + "/keys"))
        try server.comeUp()
        try await server.until { server.said("\(refusal)") > 0 }
        #expect(server.said("the database cannot be used, and clients are told") == 1)
        #expect("\(server.store.fault!)" == "\(refusal)")
        #expect(await server.put("1", under: "a") != nil)
        #expect(try database.number("SELECT count(*) FROM token") == 1)

        try FileManager.default.removeItem(atPath: folder.path + "/keys")
        try first.copyRing(to: folder)
        try await server.until { server.store.state.refusal == nil }
        #expect(await server.put("1", under: "a") == nil)
        #expect(try await first.get("a") == "1")
        #expect(server.said("\(refusal)") == 1)
    }

    @Test func `what does not mend itself ends a start at once`() throws {
        let folder = try TemporaryDirectory()
        func refusal(_ database: TestDatabase, url: String? = nil) throws -> String {
            let provider = TestServer.provider(database, folder, url: url, waits: true)
            let error = #expect(throws: StoreOpenError.self) {
                try provider.open(TestServer.times) { _ in }.close()
            }
            return error?.description ?? ""
        }
        #expect(try refusal(try TestDatabase(isEmpty: true)).contains("token-cache migrate"))
        let database = try TestDatabase()
        let missing = database.url.replacing(database.name, with: "no_such_database")
        #expect(try refusal(database, url: missing).contains("3D000"))
        // Nor is a damaged key ring waited with, for which no database is needed.
        try Data("damaged".utf8).write(to: URL(filePath: folder.path + "/keys"))
        let nowhere = "postgresql://postgres@/\(database.name)?host=%2Fnowhere"
        #expect(try refusal(database, url: nowhere).contains(folder.path + "/keys"))
    }

    @Test func `a server that is closed while it waits goes on no more`() async throws {
        let database = try TestDatabase()
        let server = try LateServer(database)
        server.store.close()
        try server.comeUp()
        #expect(await server.put("1", under: "a") != nil)
        #expect(!server.hasRing)
    }
}
#endif
