import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct TransferTests {
    private let folder: TemporaryDirectory
    private let ring: KeyRingFile

    init() throws {
        folder = try TemporaryDirectory()
        ring = KeyRingFile(path: folder.path + "/keys", credentials: nil, directory: folder.path)
    }

    private func store(_ name: String, isSealed: Bool = true) throws -> SQLiteTokenStore {
        try SQLiteTokenStore(at: "\(folder.path)/\(name)") {
            $0.keyRing = ring
            $0.isSealed = isSealed
        }
    }

    private func rows(
        of store: SQLiteTokenStore, _ table: TransferTable, limit: Int = 7
    ) async throws -> [TransferRow] {
        var (cursor, rows): (StoreCursor?, [TransferRow]) = (nil, [])
        repeat {
            let page = try await SQLiteAdministrator(store).rows(of: table, after: cursor, limit: limit)
            #expect(page.unreadable == 0 && page.rows.count <= limit)
            rows += page.rows
            cursor = page.next
        } while cursor != nil
        return rows
    }

    private func begin(_ secret: String, of user: String, in store: SQLiteTokenStore) async throws {
        let users = store.administrator.users
        _ = try await users.createSession(
            NewSession(
                user: Array(user.utf8), key: try await users.sessionKey(of: Array(secret.utf8)),
                id: try .random(), createdAt: 1_000, expiresAt: 1 << 40, perUser: 20))
    }

    @Test(arguments: [true, false])
    func `all rows come over with their times and versions, and a second time nothing is wanted`(
        isSealed: Bool
    ) async throws {
        let (from, to) = (try store("from", isSealed: isSealed), try store("to", isSealed: isSealed))
        defer {
            from.close()
            to.close()
        }
        await SQLiteAdministrator(from).fill(0..<30)
        for number in 0..<9 { try await begin("s\(number)", of: "anna", in: from) }
        let target = SQLiteAdministrator(to)
        for table in TransferTable.allCases {
            let rows = try await rows(of: from, table)
            #expect(rows.count == (table == .tokens ? 30 : 9))
            #expect(try await target.compare(rows.map(\.stamp), in: table).allSatisfy { $0 == .wanted })
            #expect(try await target.missing(rows.map(\.stamp.key), in: table).count == rows.count)
            #expect(try await target.take(rows, into: table).allSatisfy { $0 == .same })
            #expect(try await target.compare(rows.map(\.stamp), in: table).allSatisfy { $0 == .same })
            #expect(try await target.missing(rows.map(\.stamp.key), in: table).isEmpty)
            let stamps = try await self.rows(of: to, table, limit: 100).map(\.stamp)
            #expect(Set(stamps) == Set(rows.map(\.stamp)))
        }
        #expect(try await target.info("id7") == "info7")
        #expect(try await target.statistics().tokens == 30)
        #expect(
            try await target.users.sessions(of: Array("anna".utf8))
                == from.administrator.users.sessions(of: Array("anna".utf8)))
        #expect(try await target.verify { _ in }.isSound)
    }

    @Test func `what is newer in the target stays, and what is older is replaced by a later version`() async throws {
        let (from, to) = (try store("from"), try store("to"))
        defer {
            from.close()
            to.close()
        }
        func put(_ info: String, under id: String, at time: Int64, in store: SQLiteTokenStore) async throws {
            let token = (token: Token(id: Array(id.utf8), info: Array(info.utf8)), writtenAt: Int64?(time))
            for outcome in await SQLiteAdministrator(store).store([token]) { try outcome.get() }
        }
        try await put("old", under: "a", at: 100, in: from)
        try await put("new", under: "b", at: 200, in: from)
        // Their versions are later, although they were written at earlier and later times.
        try await put("newer", under: "a", at: 101, in: to)
        try await put("older", under: "b", at: 199, in: to)
        let rows = try await rows(of: from, .tokens)
        let target = SQLiteAdministrator(to)
        #expect(Set(try await target.take(rows, into: .tokens)) == [.newer, .same])
        #expect(try await target.info("a") == "newer")
        #expect(try await target.info("b") == "new")
        #expect(try await target.statistics().tokens == 2)
        let source = try #require(rows.first { $0.stamp.time == 200 }).stamp
        let taken = try #require(try await self.rows(of: to, .tokens).first { $0.stamp.time == 200 }).stamp
        #expect(taken.version > source.version)
    }

    @Test func `versions that another store has given are exceeded from then on`() async throws {
        let (from, to) = (try store("from"), try store("to"))
        await SQLiteAdministrator(from).fill(0..<1)
        var row = try await rows(of: from, .tokens)[0]
        from.close()
        // As a store on PostgreSQL gives them.
        row.stamp.version = row.stamp.version << 10
        #expect(try await SQLiteAdministrator(to).take([row], into: .tokens) == [.same])
        to.close()
        let again = try store("to")
        defer { again.close() }
        await SQLiteAdministrator(again).fill(0..<1)
        let written = try await rows(of: again, .tokens)[0].stamp.version
        #expect(written > row.stamp.version)
        // A version that nobody can have given is no reason to leave a later token out.
        row.stamp.version = .max
        row.stamp.time += 1_000_000
        #expect(try await SQLiteAdministrator(again).compare([row.stamp], in: .tokens) == [.wanted])
    }

    @Test func `rows are removed only as they were seen`() async throws {
        let store = try store("from")
        defer { store.close() }
        let administrator = SQLiteAdministrator(store)
        await administrator.fill(0..<12)
        try await begin("s1", of: "anna", in: store)
        var (cursor, places): (StoreCursor?, [TransferPlaces.Place]) = (nil, [])
        repeat {
            let page = try await administrator.places(in: .tokens, after: cursor, limit: 5)
            places += page.places
            cursor = page.next
        } while cursor != nil
        #expect(places.count == 12)
        await administrator.fill(0..<2)
        #expect(try await administrator.remove(places, from: .tokens) == 10)
        #expect(try await administrator.statistics().tokens == 2)
        let sessions = try await administrator.places(in: .sessions, after: nil, limit: 5).places
        #expect(try await administrator.remove(sessions, from: .sessions) == 1)
        #expect(try await administrator.users.sessions(of: Array("anna".utf8)).isEmpty)
        #expect(try await administrator.verify { _ in }.isSound)
    }

    @Test func `rows that do not open are counted and left out`() async throws {
        let first = try store("from")
        await SQLiteAdministrator(first).fill(0..<3)
        for secret in ["s1", "s2", "s3"] { try await begin(secret, of: "anna", in: first) }
        first.close()
        let database = try SQLiteConnection(path: folder.path + "/from/tokens.db", mode: .readWrite)
        try database.execute("UPDATE token SET written_at = written_at + 1 WHERE slot = (SELECT min(slot) FROM token)")
        try database.execute("UPDATE session SET user = zeroblob(64) WHERE number = (SELECT min(number) FROM session)")
        let store = try store("from")
        defer { store.close() }
        let page = try await SQLiteAdministrator(store).rows(of: .tokens, after: nil, limit: 10)
        #expect(page.rows.count == 2 && page.unreadable == 1)
        let sessions = try await SQLiteAdministrator(store).rows(of: .sessions, after: nil, limit: 10)
        #expect(sessions.rows.count == 2 && sessions.unreadable == 1)
    }
}
