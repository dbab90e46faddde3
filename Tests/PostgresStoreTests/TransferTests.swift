#if PostgreSQL
import Foundation
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct TransferTests {
    private func rows(of store: TestAdministration, _ table: TransferTable) async throws -> [TransferRow] {
        var (cursor, rows): (StoreCursor?, [TransferRow]) = (nil, [])
        repeat {
            let page = try await store.administrator.rows(of: table, after: cursor, limit: 7)
            #expect(page.unreadable == 0 && page.rows.count <= 7)
            rows += page.rows
            cursor = page.next
        } while cursor != nil
        return rows
    }

    @Test(arguments: [true, false])
    func `all rows come over with their times and versions, and a second time nothing is wanted`(
        isSealed: Bool
    ) async throws {
        let ring = try KeyRing.random(createdAt: 1)
        let keys: StoreKeys = isSealed ? .sealed(ring) : .clear(index: ring.index)
        let (from, to) = (try TestAdministration(nil, keys), try TestAdministration(nil, keys))
        try await from.put((0..<30).map { ("id\($0)", "info\($0)") }, writtenAt: 1_000)
        _ = try await from.administrator.remove([Array("id29".utf8)])
        for number in 0..<9 { try await from.begin("s\(number)", of: "anna") }
        for table in TransferTable.allCases {
            let rows = try await rows(of: from, table)
            #expect(rows.count == (table == .tokens ? 29 : 9))
            let target = to.administrator
            #expect(try await target.compare(rows.map(\.stamp), in: table).allSatisfy { $0 == .wanted })
            #expect(try await target.missing(rows.map(\.stamp.key), in: table).count == rows.count)
            #expect(try await target.take(rows, into: table).allSatisfy { $0 == .same })
            #expect(try await target.compare(rows.map(\.stamp), in: table).allSatisfy { $0 == .same })
            #expect(try await target.missing(rows.map(\.stamp.key), in: table).isEmpty)
            let stamps = try await self.rows(of: to, table).map(\.stamp)
            #expect(Set(stamps) == Set(rows.map(\.stamp)))
        }
        #expect(try await to.get("id7") == "info7")
        #expect(try await to.sessions(of: "anna") == from.sessions(of: "anna"))
        if isSealed {
            #expect(try await to.administrator.verify { _ in }.isSound)
        }
    }

    @Test func `what is newer in the target stays, also a removal, and what is older is replaced`() async throws {
        let from = try TestAdministration()
        let to = try TestAdministration(nil, from.state.sealing.keys)
        let now = Int64(Date.now.timeIntervalSince1970)
        try await from.put([("a", "old"), ("c", "removed"), ("e", "same second")], writtenAt: 100)
        try await from.put([("b", "new"), ("d", "again")], writtenAt: now + 3_600)
        // Written later, but at earlier and later times.
        try await to.put("newer", under: "a", writtenAt: 101)
        try await to.put([("b", "older"), ("c", "there"), ("d", "there")], writtenAt: 199)
        try await to.put("same second, later", under: "e", writtenAt: 100)
        _ = try await to.administrator.remove([Array("c".utf8), Array("d".utf8)])
        let rows = try await rows(of: from, .tokens)
        _ = try await to.administrator.take(rows, into: .tokens)
        var found: [String?] = []
        for id in ["a", "b", "c", "d", "e"] { found.append(try await to.get(id)) }
        #expect(found == ["newer", "new", nil, "again", "same second, later"])
        for id in ["b", "d"] {
            let (source, taken) = (try #require(try from.row(of: id)), try #require(try to.row(of: id)))
            #expect(taken.version > source.version && taken.times == source.times)
        }
    }

    @Test func `rows are removed only as they were seen, and removed ones are none`() async throws {
        let store = try TestAdministration()
        try await store.put((0..<12).map { ("id\($0)", "1") })
        _ = try await store.administrator.remove([Array("id11".utf8)])
        try await store.begin("s1", of: "anna")
        var (cursor, places): (StoreCursor?, [TransferPlaces.Place]) = (nil, [])
        repeat {
            let page = try await store.administrator.places(in: .tokens, after: cursor, limit: 5)
            places += page.places
            cursor = page.next
        } while cursor != nil
        #expect(places.count == 11)
        try await store.put([("id0", "2"), ("id1", "2")])
        #expect(try await store.administrator.remove(places, from: .tokens) == 9)
        #expect(try await store.administrator.statistics().tokens == 2)
        let sessions = try await store.administrator.places(in: .sessions, after: nil, limit: 5).places
        #expect(try await store.administrator.remove(sessions, from: .sessions) == 1)
        #expect(try await store.sessions(of: "anna").isEmpty)
    }

    @Test func `the use of a session that is there is taken over, and a session that differs is not`() async throws {
        let from = try TestAdministration()
        let to = try TestAdministration(nil, from.state.sealing.keys)
        try await from.begin("s1", of: "anna")
        let row = try await rows(of: from, .sessions)[0]
        #expect(try await to.administrator.take([row], into: .sessions) == [.same])
        var used = row
        used.stamp.time += 60
        #expect(try await to.administrator.compare([used.stamp], in: .sessions) == [.wanted])
        #expect(try await to.administrator.take([used], into: .sessions) == [.same])
        #expect(try await to.sessions(of: "anna").first?.lastUsedAt == row.stamp.time + 60)
        used.stamp.digest = EncodedBytes([1])
        #expect(try await to.administrator.compare([used.stamp], in: .sessions) == [.different])
    }
}
#endif
