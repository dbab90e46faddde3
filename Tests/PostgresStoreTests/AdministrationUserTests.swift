#if PostgreSQL
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct AdministrationUserTests {
    @Test func `a user has as many sessions as asked for, in their order, and they end`() async throws {
        let store = try TestAdministration()
        var made: [CreatedSession] = []
        for number in 0..<4 { made.append(try await store.begin("s\(number)", of: "anna", perUser: 3)) }
        let other = try await store.begin("other", of: "berta")
        #expect(made.map(\.ended) == [0, 0, 0, 1])
        #expect(try await store.sessions(of: "anna").map(\.id) == made.dropFirst().map(\.id))
        #expect(try await store.sessions(of: "anna").first?.user == Array("anna".utf8))
        let administrator = store.administrator
        #expect(
            try await administrator.endSession(id: made[2].id)
                == EndedSession(id: made[2].id, user: Array("anna".utf8)))
        #expect(try await administrator.endSession(id: made[2].id) == nil)
        #expect(try await administrator.endSessions(of: Array("anna".utf8)) == 2)
        #expect(try await administrator.endSessions(of: Array("anna".utf8)) == 0)
        #expect(try await store.sessions(of: "anna").isEmpty)
        #expect(try await store.sessions(of: "berta").map(\.id) == [other.id])
    }

    @Test func `expired sessions are not listed`() async throws {
        let store = try TestAdministration()
        try await store.begin("s1", of: "anna", expiresAt: 2_000)
        let current = try await store.begin("s2", of: "anna")
        #expect(try await store.sessions(of: "anna").map(\.id) == [current.id])
    }

    @Test func `a session of a key that is lost ends all the same`() async throws {
        let store = try TestAdministration()
        let made = try await store.begin("s1", of: "anna")
        try store.database.allow(keys: 9)
        try store.database.sql("UPDATE session SET key_number = 9")
        #expect(try await store.administrator.endSession(id: made.id) == EndedSession(id: made.id, user: nil))
    }

    @Test(arguments: [true, false])
    func `nothing of an erased user is in a row, except a keyed hash`(isSealed: Bool) async throws {
        let ring = try KeyRing.random(createdAt: 1)
        let store = try TestAdministration(nil, isSealed ? .sealed(ring) : .clear(index: ring.index))
        let user = "anna-4711"
        try await store.put("secret", under: user)
        try await store.put("other", under: "berta")
        for number in 0..<2 { try await store.begin("s\(number)", of: user) }
        try await store.begin("other", of: "berta")
        #expect(
            try await store.administrator.erase(Array(user.utf8)) == Erasure(hadToken: true, sessions: 2))
        #expect(
            try await store.administrator.erase(Array(user.utf8)) == Erasure(hadToken: false, sessions: 0))
        let rows = try store.database.sql(
            "SELECT row_to_json(token)::text FROM token UNION ALL SELECT row_to_json(session)::text FROM session")
        let text = rows.joined().compactMap(\.self).joined(separator: "\n")
        let hexadecimal = Array(user.utf8).map { String($0, radix: 16) }.joined()
        #expect(!text.contains(hexadecimal))
        #expect(try store.row(of: user)?.value == nil)
        #expect((try store.row(of: user) == nil) == !isSealed)
        #expect(try await store.get("berta") == "other")
        #expect(try await store.sessions(of: "berta").count == 1)
    }
}
#endif
