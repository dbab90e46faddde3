#if PostgreSQL
import Foundation
import System
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// Keys that several servers share.
@Suite struct SharedKeyTests {
    @Test func `the only server seals with a new key at once`() async throws {
        let server = try TestServer(try TestDatabase())
        defer { server.store.close() }
        try await server.put("token", under: "old")
        let key = try await server.keys.addKey()
        #expect(key.number == 2)
        #expect(key.isNewest)
        #expect(key.missingOn == nil)
        try await server.put("token", under: "new")
        #expect(try await server.keyNumber(of: "old") == 1)
        #expect(try await server.keyNumber(of: "new") == 2)
        #expect(try await server.get("old") == "token")
        #expect(try await server.keys.keys().map(\.isNewest) == [false, true])
    }

    @Test func `a new key waits until all running servers have it, and then seals on all of them`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let second = try TestServer(database, "b", folder: try first.copyOfRing())
        let key = try await first.keys.addKey()
        #expect(!key.isNewest)
        #expect(key.missingOn == ["b"])
        try await first.put("token", under: "before")
        #expect(try await first.keyNumber(of: "before") == 1)
        // Another one has to wait for this one.
        await #expect(throws: StoreError.self) { try await first.keys.addKey() }
        // Neither the key that waits is retired nor the one that seals.
        await #expect(throws: StoreError.self) { try await first.keys.retireKey(numbered: 2) }
        await #expect(throws: StoreError.self) { try await first.keys.retireKey(numbered: 1) }

        try first.copyRing(to: second.folder)
        try await eventually { try await first.keys.keys().last?.isNewest ?? false }
        try await eventually { try await second.keys.keys().last?.isNewest ?? false }
        #expect(first.said("key 2 seals from now on"))
        #expect(second.said("key 2 seals from now on"))
        for server in [first, second] {
            try await server.put("token", under: "after")
            #expect(try await server.keyNumber(of: "after") == 2)
        }
        #expect(try await second.get("before") == "token")
        first.store.close()
        second.store.close()
    }

    @Test func `a server that has ended is not waited for`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let second = try TestServer(database, "b", folder: try first.copyOfRing())
        second.store.close()
        #expect(try database.sql("SELECT name FROM server") == [["a"]])
        #expect(try await first.keys.addKey().isNewest)
        first.store.close()
        #expect(try database.sql("SELECT name FROM server") == [])
    }

    @Test func `a server that has crashed is waited for no longer than it takes to notice`() async throws {
        let database = try TestDatabase()
        var times = TestServer.times
        times.silence = .milliseconds(700)
        let first = try TestServer(database, times: times)
        let now = Int64(Date().timeIntervalSince1970)
        try RegisteredServer(
            id: [1], name: "crashed", version: "0.1", keyNumbers: [1], sealingNumbers: [1],
            startedAt: now, seenAt: now
        ).write(to: database.session(), until: TestDatabase.deadline)
        #expect(try await first.keys.addKey().missingOn == ["crashed"])
        try await eventually { try await first.keys.keys().last?.isNewest ?? false }
        first.store.close()
    }

    @Test func `a server without a key says so, and serves the rest`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let old = try first.copyOfRing()
        try await first.put("token", under: "old")
        _ = try await first.keys.addKey()
        try await first.put("token", under: "new")
        let second = try TestServer(database, "b", folder: old)
        #expect(second.said("the key ring \(old.path)/keys lacks key 2, with which tokens of the store are sealed"))
        #expect(try await second.get("old") == "token")
        await #expect(throws: StoreError.sealing(.missingKey(number: 2))) { try await second.get("new") }
        // Without a restart, when it gets the ring.
        try first.copyRing(to: old)
        try await eventually { (try? await second.get("new")) == "token" }
        first.store.close()
        second.store.close()
    }

    @Test func `a ring that does not fit is not taken over, and a missing one is borne`() async throws {
        let server = try TestServer(try TestDatabase())
        let ring = try #require(try TestServer.ringFile(server.folder).load())
        try TestServer.ringFile(server.folder).save(try KeyRing.random(createdAt: 1))
        try await eventually { server.said("the key ring \(server.folder.path)/keys is not the one") }
        try await server.put("token", under: "id")
        await #expect(throws: StoreError.keyRing(.ofAnotherStore(path: server.folder.path + "/keys"))) {
            try await server.keys.addKey()
        }
        try FileManager.default.removeItem(atPath: server.folder.path + "/keys")
        try await eventually { server.said("the store is sealed and its key ring") }
        try TestServer.ringFile(server.folder).save(ring)
        #expect(try await server.keys.addKey().number == 2)
        #expect(try await server.get("id") == "token")
        server.store.close()
    }

    // MARK: - Rekeying and retiring

    @Test func `after a rekeying the old key can be retired, on all servers`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let second = try TestServer(database, "b", folder: try first.copyOfRing())
        for number in 0..<450 { try await first.put("token \(number)", under: "\(number)") }
        let users = try #require(first.store.administrator.users)
        let sessionKey = try await users.sessionKey(of: Array("secret".utf8))
        _ = try await users.createSession(
            NewSession(
                user: Array("user".utf8), key: sessionKey, id: try .random(), createdAt: 1, expiresAt: 1 << 40,
                perUser: 5))
        _ = try await first.keys.addKey()
        try first.copyRing(to: second.folder)
        try await eventually { try await second.keys.keys().last?.isNewest ?? false }
        try await eventually { try await first.keys.keys().last?.isNewest ?? false }

        await #expect(throws: StoreError.self) { try await first.keys.retireKey(numbered: 1) }
        let versions = try database.sql("SELECT sum(version)::text FROM token")
        let result = try await second.keys.rekey { _ in }
        #expect(result.tokens == 450)
        #expect(result.rekeyed == 450)
        #expect(result.unreadable == 0)
        // The versions, which clients see, stay.
        #expect(try database.sql("SELECT sum(version)::text FROM token") == versions)
        #expect(try database.number("SELECT count(*) FROM token WHERE key_number = 1") == 0)
        #expect(try database.number("SELECT count(*) FROM session WHERE key_number = 1") == 0)
        #expect(try await second.keys.rekey { _ in }.rekeyed == 0)

        try await eventually { try database.sql("SELECT key_numbers FROM server") == [["1,2*"], ["1,2*"]] }
        try await first.keys.retireKey(numbered: 1)
        #expect(try await first.keys.keys().map(\.number) == [2])
        #expect(try database.sql("SELECT number::text FROM sealing_key") == [["2"]])
        // The other one takes it over with the file.
        try first.copyRing(to: second.folder)
        try await eventually { try await second.keys.keys().map(\.number) == [2] }
        for number in [0, 449] { #expect(try await second.get("\(number)") == "token \(number)") }
        let found = try await #require(second.store.administrator.users).sessions(of: Array("user".utf8))
        #expect(found.map(\.user) == [Array("user".utf8)])
        first.store.close()
        second.store.close()
    }

    @Test func `a rekeying never undoes a newer write, and leaves what it cannot open`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        try await server.put("old", under: "replaced")
        try await server.put("damaged", under: "damaged")
        _ = try await server.keys.addKey()
        let admin = try TestAdministration(
            database, .sealed(try #require(try TestServer.ringFile(server.folder).load())))
        let stale = try #require(try admin.row(of: "replaced"))
        try await server.put("new", under: "replaced")
        // As a rekeying that has read the row before the write.
        try admin.sessions.perform(within: .seconds(30), repeats: true) { (session, deadline) throws(PostgresError) in
            try session.transaction(until: deadline) { () throws(PostgresError) in
                try TokenRows(session, until: deadline).replaceSeals(of: [stale])
            }
        }
        #expect(try await server.get("replaced") == "new")
        try database.sql("UPDATE token SET written_at = written_at + 1 WHERE key_number = 1")
        let result = try await server.keys.rekey { _ in }
        #expect(result.unreadable == 1)
        #expect(try await server.keyNumber(of: "damaged") == 1)
        await #expect(throws: StoreError.self) { try await server.keys.retireKey(numbered: 1) }
        // The refused retirement leaves everything as it was.
        #expect(try database.sql("SELECT number::text FROM sealing_key ORDER BY 1") == [["1"], ["2"]])
        #expect(try await server.keys.keys().map(\.number) == [1, 2])
        server.store.close()
    }

    @Test func `a key is not retired while another server seals with it`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let old = try first.copyOfRing()
        _ = try await first.keys.addKey()
        // It lacks the newer key, and so goes on with the older one.
        let second = try TestServer(database, "b", folder: old)
        do {
            try await first.keys.retireKey(numbered: 1)
            Issue.record("it is not refused")
        } catch {
            #expect("\(error)".hasPrefix("servers still seal with key 1, or have only just stopped: b;"))
        }
        second.store.close()
        try await first.keys.retireKey(numbered: 1)
        // One that starts with an old copy of the ring does not seal with the retired key.
        let third = try TestServer(database, "c", folder: old)
        #expect(third.said("key 1 was retired"))
        await #expect(throws: StoreError.sealing(.retired(keyNumber: 1))) {
            try await third.put("token", under: "id")
        }
        first.store.close()
        third.store.close()
    }

    // MARK: - The registry

    @Test func `a server is registered with its keys, and tells when the schema leaves it behind`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        #expect(
            try database.sql("SELECT name, version, key_numbers FROM server")
                == [["a", "0.1", "1*"]])
        _ = try await server.keys.addKey()
        try await eventually { try database.sql("SELECT key_numbers FROM server") == [["1,2*"]] }
        try database.sql("UPDATE store SET schema_version = 9")
        try await eventually { server.said("the database has schema 9, and this version") }
        try database.sql("UPDATE store SET key_ring = 'other'")
        try await eventually { server.said("the database is sealed with another key ring now") }
        server.store.close()
    }

    @Test func `the row of a server that has crashed is removed in time`() async throws {
        let database = try TestDatabase()
        var times = TestServer.times
        times.forgetting = .milliseconds(500)
        let server = try TestServer(database, times: times)
        try RegisteredServer(
            id: [1], name: "crashed", version: "0.1", keyNumbers: [1], startedAt: 1, seenAt: 1
        ).write(to: database.session(), until: TestDatabase.deadline)
        try await eventually { try database.sql("SELECT name FROM server") == [["a"]] }
        server.store.close()
    }

    @Test func `a server runs while its row changes, whatever time the row names`() {
        func row(_ id: UInt8, seenAt: Int64) -> RegisteredServer {
            RegisteredServer(
                id: [id], name: "\(id)", version: "", keyNumbers: [], startedAt: 0, seenAt: seenAt)
        }
        func at(_ seconds: UInt64) -> MonotonicTime { MonotonicTime(nanoseconds: seconds * 1_000_000_000) }
        var watch = ServerWatch(silence: .seconds(60))
        // The clock of the first stands still at a time long ago, that of the second is ahead and goes.
        for second in stride(from: UInt64(0), through: 90, by: 30) {
            watch.look(at: [row(1, seenAt: 5), row(2, seenAt: 1 << 40 + Int64(second))], at(second))
            #expect(watch.isRunning(row(1, seenAt: 5), at(second)) == (second < 60))
            #expect(watch.isRunning(row(2, seenAt: 0), at(second)))
        }
        #expect(watch.unchanged(row(1, seenAt: 5), at(90)) == Nanoseconds(.seconds(90)))
        // It goes on after a pause.
        watch.look(at: [row(1, seenAt: 6)], at(100))
        #expect(watch.isRunning(row(1, seenAt: 6), at(100)))
        #expect(watch.unchanged(row(2, seenAt: 0), at(100)) == nil)
    }
}
#endif
