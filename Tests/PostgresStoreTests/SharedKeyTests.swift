#if PostgreSQL
import Foundation
import StoreConformance
import System
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

/// Keys that several servers share.
@Suite struct SharedKeyTests {
    @Test func `a new key waits until it is told to seal, and then seals on all servers`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let second = try TestServer(database, folder: try first.copyOfRing())
        defer { for server in [first, second] { server.store.close() } }
        let handle = try await WaitingHandle.open(second.store)
        let key = try await first.keys.addKey()
        #expect(key.number == 2 && !key.seals)
        try await first.put("token", under: "before")
        #expect(try await first.keyNumber(of: "before") == 1)
        // Neither the waiting key nor the one that seals can be retired, and no further key can be added.
        for number in [1, 2] {
            await #expect(throws: StoreError.self) { try await first.keys.retireKey(numbered: number) }
        }
        await #expect(throws: StoreError.self) { try await first.keys.addKey() }
        // The other server lacks the key, which changes nothing yet.
        try await eventually { second.said("the key ring \(second.folder.path)/keys lacks key 2 of the database") }
        #expect(second.store.fault == nil && second.store.metrics.remote?.missingKeys == 1)
        await #expect(throws: StoreError.self) { try await second.keys.useKey(numbered: 2) }
        // Nor can it add a key of the same number.
        await #expect(throws: StoreError.self) { try await second.keys.addKey() }

        try first.copyRing(to: second.folder)
        #expect(try await second.keys.useKey(numbered: 2).seals)
        #expect(try await first.keys.keys().map(\.seals) == [false, true])
        for server in [first, second] {
            #expect(server.said("key 2 seals from now on"))
            try await server.put("token", under: "after")
            #expect(try await server.keyNumber(of: "after") == 2)
        }
        #expect(try await handle.get("before") == "token")
        #expect(second.store.metrics.remote?.missingKeys == 0)
    }

    @Test func `two keys of one number are told apart`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let second = try TestServer(database, folder: try first.copyOfRing())
        defer { for server in [first, second] { server.store.close() } }
        _ = try await WaitingHandle.open(second.store)
        let own = try #require(try TestServer.ringFile(second.folder).load()).addingKey(createdAt: 1)
        try TestServer.ringFile(second.folder).save(own)
        let key = try await first.keys.addKey()
        let error = KeyRingError.otherKey(
            number: 2, path: second.folder.path + "/keys", own: own.newest.fingerprint(), stores: key.fingerprint)
        try await eventually { second.said("\(error)") && second.store.fault != nil }
        await #expect(throws: StoreError.keyRing(error)) { try await second.keys.useKey(numbered: 2) }
        await #expect(throws: StoreError.keyRing(error)) { try await second.keys.addKey() }
        await #expect(throws: StoreError.self) { try await second.put("token", under: "id") }
        // The right file mends this without a restart.
        try TestServer.ringFile(second.folder).save(try #require(try TestServer.ringFile(first.folder).load()))
        try await eventually { second.store.fault == nil }
        try await second.put("token", under: "id")
        #expect(try await first.get("id") == "token")
    }

    @Test(arguments: [true, false])
    func `of servers that add a key of one number at once, one has it, and all of them store tokens`(
        isLate: Bool
    ) async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        defer { server.store.close() }
        // What another server does at the same moment.
        let connection = try database.connection()
        for statement in ["BEGIN", "INSERT INTO sealing_key VALUES (2, 'other')"] { try connection.run(statement) }
        let keys = try server.keys
        let addition = Task { try await keys.addKey() }
        try await eventually { try database.waiting("INSERT INTO sealing_key") == 1 }
        try connection.run(isLate ? "COMMIT" : "ROLLBACK")
        if isLate {
            await #expect(throws: StoreError.self) { try await addition.value }
        } else {
            #expect(try await addition.value.number == 2)
        }
        #expect(try await keys.keys().map(\.number) == (isLate ? [1] : [1, 2]))
        #expect(try TestServer.ringFile(server.folder).load()?.keys.count == (isLate ? 1 : 2))
        try await server.put("token", under: "id")
    }

    @Test func `a key that the file cannot take is not in the database either`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        defer { server.store.close() }
        // Where the file is written.
        let obstacle = server.folder.path + "/keys.new"
        try FileManager.default.createDirectory(atPath: obstacle, withIntermediateDirectories: false)
        await #expect(throws: StoreError.self) { try await server.keys.addKey() }
        #expect(try database.number("SELECT count(*) FROM sealing_key WHERE number > 0") == 1)
        try FileManager.default.removeItem(atPath: obstacle)
        #expect(try await server.keys.addKey().number == 2)
    }

    @Test func `a ring that does not fit is not taken over, and a missing one is borne`() async throws {
        let server = try TestServer(try TestDatabase())
        _ = try await WaitingHandle.open(server.store)
        let ring = try #require(try TestServer.ringFile(server.folder).load())
        try TestServer.ringFile(server.folder).save(KeyRing.random(createdAt: 1))
        try await eventually { server.said("the key ring \(server.folder.path)/keys is not the one") }
        try await server.put("token", under: "id")
        await #expect(throws: StoreError.keyRing(.ofAnotherStore(path: server.folder.path + "/keys"))) {
            try await server.keys.addKey()
        }
        try FileManager.default.removeItem(atPath: server.folder.path + "/keys")
        try await eventually { server.said("the store is sealed and its key ring") }
        // Otherwise, after a restart, no server could read what the key has sealed.
        await #expect(throws: StoreError.self) { try await server.keys.useKey(numbered: 1) }
        try TestServer.ringFile(server.folder).save(ring)
        #expect(try await server.keys.addKey().number == 2)
        #expect(try await server.get("id") == "token")
        server.store.close()
    }

    // MARK: - Rekeying and retiring

    @Test func `a key whose number is larger than any, in a manipulated database, is not retired`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        defer { server.store.close() }
        try await server.put("token", under: "id")
        try database.sql(
            "INSERT INTO sealing_key VALUES (\(Int64.max), '')", "UPDATE token SET key_number = \(Int64.max)")
        await #expect(throws: StoreError.self) { try await server.keys.retireKey(numbered: .max) }
    }

    @Test func `after a round of the walk the old key can be retired, on all servers`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let second = try TestServer(database, folder: try first.copyOfRing())
        for number in 0..<450 { try await first.put("token \(number)", under: "\(number)") }
        let handle = first.store.administrator.handle
        for number in 0..<3 {
            let key = try await handle.sessionKey(of: Array("secret\(number)".utf8))
            let session = UserSession(id: .random(), user: Array("user".utf8), createdAt: 1, expiresAt: 1 << 40)
            let _: Int = try await handle.outcome { $0.createSession(session, key, perUser: 5, completion: $1) }
        }
        _ = try await first.keys.addKey()
        try first.copyRing(to: second.folder)
        _ = try await first.keys.useKey(numbered: 2)
        _ = try await second.keys.keys()

        await #expect(throws: Self.needed) { try await first.keys.retireKey(numbered: 1) }
        // A ring that was kept for the retirement would be the present one under another name.
        #expect(try !FileManager.default.contentsOfDirectory(atPath: first.folder.path).joined().contains("retired"))
        let versions = try database.sql("SELECT sum(version)::text FROM token")
        let result = try await second.store.administrator.walk { _ in }
        #expect(result.tokens == 450)
        #expect(result.rekeyed == 450)
        #expect(result.isSound)
        // The versions, which clients see, stay.
        #expect(try database.sql("SELECT sum(version)::text FROM token") == versions)
        #expect(try database.number("SELECT count(*) FROM token WHERE key_number = 1") == 0)
        #expect(try database.number("SELECT count(*) FROM session WHERE key_number = 1") == 0)
        #expect(try await second.store.administrator.walk { _ in }.rekeyed == 0)

        // A kept ring of another store in the folder does not matter.
        try KeyRingFile(path: first.folder.path + "/keys.retired-1", credentials: nil, directory: "").save(
            KeyRing.random(createdAt: 1))
        try await first.keys.retireKey(numbered: 1)
        #expect(try await first.keys.keys().map(\.number) == [2])
        #expect(try database.sql("SELECT number::text FROM sealing_key WHERE number > 0") == [["2"]])
        // The other server takes this over from the file.
        try first.copyRing(to: second.folder)
        #expect(try await second.keys.keys().map(\.number) == [2])
        for number in [0, 449] { #expect(try await second.get("\(number)") == "token \(number)") }
        let found: [UserSession] = try await second.store.administrator.handle.outcome {
            $0.listSessions(of: Array("user".utf8), completion: $1)
        }
        #expect(found.map(\.user) == [[UInt8]](repeating: Array("user".utf8), count: 3))
        first.store.close()
        second.store.close()
    }

    private static let needed = StoreError.refused(
        "tokens or sessions are still sealed with key 1; run token-cache keyring rotate")

    @Test func `the walk never undoes a newer write, and leaves what it cannot open`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        try await server.put("old", under: "replaced")
        try await server.put("damaged", under: "damaged")
        _ = try await server.keys.addKey()
        _ = try await server.keys.useKey(numbered: 2)
        let admin = try TestAdministration(
            database, try TestServer.ringFile(server.folder).load())
        let stale = try #require(try admin.row(of: "replaced"))
        try await server.put("new", under: "replaced")
        // A step of the walk that has read the row before the write.
        let connection = try database.connection()
        var step = WalkStep(
            WalkReport(beganAt: 1), server.store.state.sealing, WalkRules(Retention(), expiryTime: nil))
        try step.visit(.token(stale))
        try connection.transaction { () throws(PostgresError) in _ = try step.finish(connection, .token) }
        #expect(try await server.get("replaced") == "new")
        try database.sql("UPDATE token SET written_at = written_at + 1 WHERE key_number = 1")
        let result = try await server.store.administrator.walk { _ in }
        #expect(result.unreadable.values.reduce(0, +) == 1)
        #expect(try await server.keyNumber(of: "damaged") == 1)
        try await server.keys.retireKey(numbered: 1)
        #expect(try await server.keys.keys().map(\.number) == [2])
        server.store.close()
    }

    @Test func `a server that was paused does not bring a retired key back, and then looks at once`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let paused = try TestServer(database, folder: try first.copyOfRing(), lookingEvery: .seconds(3_600))
        defer { for server in [first, paused] { server.store.close() } }
        let handle = try await WaitingHandle.open(paused.store)
        try await handle.put("1", under: "a")
        _ = try await first.keys.addKey()
        _ = try await first.keys.useKey(numbered: 2)
        _ = try await first.store.administrator.walk { _ in }
        try await first.keys.retireKey(numbered: 1)
        try first.copyRing(to: paused.folder)

        await #expect(throws: StoreError.staleKey) { try await handle.put("2", under: "a") }
        #expect(try await first.get("a") == "1")
        try await eventually { (try? await handle.put("3", under: "b", if: .missing)) != nil }
        #expect(try await paused.keyNumber(of: "b") == 2)
        #expect(try await handle.get("a") == "1")
    }

    @Test(arguments: [true, false])
    func `a key is not retired before uncommitted rows with it have ended`(isStored: Bool) async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        defer { server.store.close() }
        try await server.put("late", under: "a")
        try database.sql("CREATE TABLE kept AS SELECT * FROM token", "DELETE FROM token")
        _ = try await server.keys.addKey()
        _ = try await server.keys.useKey(numbered: 2)
        let connection = try database.connection()
        for statement in ["BEGIN", "INSERT INTO token SELECT * FROM kept"] {
            try connection.run(statement)
        }
        let keys = try server.keys
        let retirement = Task { try await keys.retireKey(numbered: 1) }
        try await eventually { try database.waiting("DELETE FROM sealing_key") == 1 }
        try connection.run(isStored ? "COMMIT" : "ROLLBACK")
        if isStored {
            await #expect(throws: Self.needed) { try await retirement.value }
        } else {
            try await retirement.value
        }
        #expect(try await server.keys.keys().map(\.number) == (isStored ? [1, 2] : [2]))
    }

    @Test func `a key that no ring has any more can be retired`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        defer { server.store.close() }
        let ring = try #require(try TestServer.ringFile(server.folder).load())
        _ = try await server.keys.addKey()
        server.store.close()
        try TestServer.ringFile(server.folder).save(ring)
        let again = try TestServer(database, folder: server.folder)
        defer { again.store.close() }
        await #expect(throws: StoreError.self) { try await again.keys.addKey() }
        try await again.keys.retireKey(numbered: 2)
        #expect(try await again.keys.addKey().number == 2)
    }

    @Test func `a server that has missed a rotation says which key it lacks, whatever its operator tries`()
        async throws
    {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let other = try TestServer(database, folder: try first.copyOfRing())
        defer { for server in [first, other] { server.store.close() } }
        try await other.put("1", under: "a")
        _ = try await first.keys.addKey()
        _ = try await first.keys.useKey(numbered: 2)
        _ = try await first.store.administrator.walk { _ in }
        try await first.keys.retireKey(numbered: 1)
        let keys = try other.keys
        let attempts: [() async throws -> Void] = [
            { _ = try await keys.addKey() }, { _ = try await keys.useKey(numbered: 1) },
            { try await keys.retireKey(numbered: 1) }, { try await keys.retireKey(numbered: 2) },
        ]
        for attempt in attempts {
            let error = await #expect(throws: StoreError.self) { try await attempt() }
            #expect("\(try #require(error))".contains("lacks key 2, which seals"))
        }
        #expect(try await keys.keys().map(\.seals) == [false])
        try first.copyRing(to: other.folder)
        #expect(try await keys.keys().map(\.seals) == [true])
        try await other.put("2", under: "a")
    }

    @Test func `a retired key is not added again by a server that still has it`() async throws {
        let database = try TestDatabase()
        let first = try TestServer(database)
        let second = try TestServer(database, folder: try first.copyOfRing())
        defer { for server in [first, second] { server.store.close() } }
        _ = try await first.keys.addKey()
        try await second.keys.retireKey(numbered: 2)
        #expect(try await first.keys.addKey().number == 3)
        #expect(try database.sql("SELECT number::text FROM sealing_key WHERE number > 0 ORDER BY 1") == [["1"], ["3"]])
    }

    @Test func `a server says when the tables or the ring of the database are not its own any more`() async throws {
        let database = try TestDatabase()
        let server = try TestServer(database)
        defer { server.store.close() }
        _ = try await WaitingHandle.open(server.store)
        try database.sql("UPDATE store SET schema_version = 9")
        try await eventually { server.said("the database has schema 9, and this version") && server.store.fault != nil }
        try database.sql("UPDATE store SET schema_version = \(Schema.version), key_ring = 'other'")
        try await eventually { server.said("the database is now sealed with another key ring") }
        await #expect(throws: StoreError.self) { try await server.put("token", under: "id") }
    }
}
#endif
