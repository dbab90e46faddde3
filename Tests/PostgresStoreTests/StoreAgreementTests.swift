#if PostgreSQL
import Foundation
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// How servers agree on the ring that the store is sealed with.
@Suite struct StoreAgreementTests {
    private func refusal(
        _ database: TestDatabase, folder: TemporaryDirectory? = nil, makesKeyRing: Bool = true
    ) throws -> StoreOpenError? {
        let folder = folder ?? TemporaryDirectory()
        defer { withExtendedLifetime(folder) {} }
        let provider = TestServer.provider(database, folder, makesKeyRing: makesKeyRing)
        do throws(StoreOpenError) {
            try provider.open().close()
            return nil
        } catch {
            return error
        }
    }

    @Test func `the first server makes a ring, and others need a copy of it`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        defer { first.store.close() }
        #expect(first.events.all.first == .madeKeyRing(path: first.folder.path + "/keys"))
        try await first.put("token", under: "id")

        let without = TemporaryDirectory()
        #expect(
            try refusal(database, folder: without) == .keyRing(.missing(path: without.path + "/keys")))
        let other = TemporaryDirectory()
        try TestServer.ringFile(other).save(KeyRing.random(createdAt: 1))
        #expect(try refusal(database, folder: other) == .keyRing(.ofAnotherStore(path: other.path + "/keys")))

        let second = try TestServer(database, folder: try first.copyOfRing())
        defer { second.store.close() }
        #expect(try await second.get("id") == "token")
        #expect(!second.said("made the key ring"))
    }

    @Test func `what only reads makes no ring`() throws {
        let (database, folder) = (try TestDatabase(), TemporaryDirectory())
        let fault = try refusal(database, folder: folder, makesKeyRing: false)
        #expect("\(fault.map(String.init(describing:)) ?? "")".contains("the database has no key ring, as no server"))
        #expect(!FileManager.default.fileExists(atPath: folder.path + "/keys"))
        let server = try TestServer(database)
        defer { server.store.close() }
        #expect(try refusal(database, folder: try server.copyOfRing(), makesKeyRing: false) == nil)
    }

    @Test func `of several servers that start at once one makes the ring, and the others say that they lack it`()
        async throws
    {
        let database = try TestDatabase()
        let folders = (0..<4).map { _ in TemporaryDirectory() }
        let outcomes = await withTaskGroup(of: (PostgresTokenStore?, StoreOpenError?).self) { group in
            for folder in folders {
                group.addTask {
                    do throws(StoreOpenError) {
                        let provider = TestServer.provider(database, folder)
                        return (try provider.open(), nil)
                    } catch {
                        return (nil, error)
                    }
                }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        let opened = outcomes.compactMap(\.0)
        #expect(opened.count == 1)
        for error in outcomes.compactMap(\.1) {
            guard case .keyRing(.missing) = error else { throw error }
        }
        // The others have removed the rings they had made, as nothing was sealed with them.
        #expect(folders.count { FileManager.default.fileExists(atPath: $0.path + "/keys") } == 1)
        for store in opened { store.close() }
    }

    @Test func `servers with copies of one ring may start at once`() async throws {
        let database = try TestDatabase()
        let ring = KeyRing.random(createdAt: 1)
        let folders = try (0..<4).map { _ in
            let folder = TemporaryDirectory()
            try TestServer.ringFile(folder).save(ring)
            return folder
        }
        let servers = try await withThrowingTaskGroup(of: TestServer.self) { group in
            for folder in folders { group.addTask { try TestServer(database, folder: folder) } }
            return try await group.reduce(into: [TestServer]()) { $0.append($1) }
        }
        for (number, server) in servers.enumerated() { try await server.put("token \(number)", under: "\(number)") }
        for number in 0..<4 { #expect(try await servers[3 - number].get("\(number)") == "token \(number)") }
        for server in servers { server.store.close() }
    }

    @Test func `a disagreement is reported each time that it begins, and each time that it is over`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        defer { server.store.close() }
        for _ in 0..<2 {
            try database.sql("UPDATE store SET schema_version = 5")
            for _ in 0..<2 { await #expect(throws: StoreError.self) { try await server.keys.keys() } }
            try database.sql("UPDATE store SET schema_version = 4")
            for _ in 0..<2 { _ = try await server.keys.keys() }
        }
        for beginning in ["the database has schema 5", "this server agrees with the database again"] {
            #expect(server.events.all.count { $0.description.hasPrefix(beginning) } == 2, "\(server.events.all)")
        }
    }

    @Test func `a ring with another key of a number than the database's is refused, and the error names both`() throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        defer { first.store.close() }
        let folder = TemporaryDirectory()
        let ring = try #require(try TestServer.ringFile(first.folder).load())
        let other = KeyRing(index: ring.index, keys: KeyRing.random(createdAt: 1).keys)
        try TestServer.ringFile(folder).save(other)
        let (own, stores) = (other.newest.fingerprint(), ring.newest.fingerprint())
        #expect(
            try refusal(database, folder: folder)
                == .keyRing(.otherKey(number: 1, path: folder.path + "/keys", own: own, stores: stores)))
    }
}
#endif
