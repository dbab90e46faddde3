import TestSupport
import Testing

@testable import TokenStore

@Suite struct TransferStampTests {
    private typealias Present = TransferStamp.Present

    private static let digest: [UInt8] = [1, 2, 3]
    private static let now: Int64 = 1_000_000

    private func stamp(_ version: Int64, at time: Int64, expiresAt: Int64? = nil) -> TransferStamp {
        TransferStamp(
            key: EncodedBytes([9]), version: version, time: time, expiresAt: expiresAt,
            digest: EncodedBytes(Self.digest))
    }

    @Test func `a token is wanted unless what is there is the same or newer`() {
        let table: [(Present?, TransferStanding)] = [
            (nil, .wanted),
            (Present(version: 5, time: 100, digest: Self.digest), .same),
            // Another store has given it another version, or another key has sealed it.
            (Present(version: 9, time: 100, digest: Self.digest), .same),
            (Present(version: 9, time: 99, digest: [4]), .wanted),
            (Present(version: 1, time: 101, digest: [4]), .newer),
            (Present(version: 4, time: 100, digest: [4]), .wanted),
            (Present(version: 6, time: 100, digest: [4]), .newer),
            (Present(version: 5, time: 100, digest: [4]), .different),
            // One that does not open.
            (Present(version: 5, time: 100, digest: nil), .different),
            (Present(version: 4, time: 100, digest: nil), .wanted),
            // Removed ones.
            (Present(version: 9, time: 99, digest: nil, isRemoved: true), .wanted),
            (Present(version: 1, time: 101, digest: nil, isRemoved: true), .newer),
            (Present(version: 6, time: 100, digest: nil, isRemoved: true), .newer),
            (Present(version: 4, time: 100, digest: nil, isRemoved: true), .wanted),
        ]
        for (present, standing) in table {
            let found = stamp(5, at: 100).standing(beside: present, in: .tokens, Retention(), at: Self.now)
            #expect(found == standing, "beside \(String(describing: present))")
        }
    }

    @Test func `a session is wanted if it is not there or was used later`() {
        let table: [(Present?, TransferStanding)] = [
            (nil, .wanted), (Present(version: 5, time: 100, digest: Self.digest), .same),
            (Present(version: 5, time: 101, digest: Self.digest), .same),
            (Present(version: 5, time: 99, digest: Self.digest), .wanted),
            (Present(version: 5, time: 99, digest: [4]), .different),
        ]
        for (present, standing) in table {
            let stamp = stamp(5, at: 100, expiresAt: Self.now + 1)
            #expect(stamp.standing(beside: present, in: .sessions, Retention(), at: Self.now) == standing)
        }
    }

    @Test func `what has expired is not wanted`() {
        let retention = Retention(
            sinceWritten: .seconds(60), sinceExpired: .seconds(60), sinceSessionUsed: .seconds(60))
        let (now, old) = (Self.now, Self.now - 100)
        let table: [(TransferStamp, TransferTable, TransferStanding)] = [
            (stamp(1, at: old), .tokens, .expired), (stamp(1, at: now), .tokens, .wanted),
            (stamp(1, at: now, expiresAt: old), .tokens, .expired),
            (stamp(1, at: now, expiresAt: now - 10), .tokens, .wanted),
            (stamp(1, at: now, expiresAt: now), .sessions, .expired),
            (stamp(1, at: old, expiresAt: now + 10), .sessions, .expired),
            (stamp(1, at: now, expiresAt: now + 10), .sessions, .wanted),
        ]
        for (stamp, table, standing) in table {
            #expect(stamp.standing(beside: nil, in: table, retention, at: now) == standing, "\(stamp)")
        }
    }

    @Test func `a version far ahead of the clock is not taken over`() {
        #expect(stamp(7, at: 1).plausibleVersion(at: Self.now) == 7)
        #expect(stamp((Self.now * 1_000_000) << 10, at: 1).plausibleVersion(at: Self.now) != nil)
        #expect(stamp(((Self.now + 400 * 86_400) * 1_000_000) << 10, at: 1).plausibleVersion(at: Self.now) == nil)
        #expect(stamp(.max, at: 1).plausibleVersion(at: Self.now) == nil)
        #expect(stamp(-1, at: 1).plausibleVersion(at: Self.now) == nil)
    }

    @Test func `a row of another ring, or one whose key is that of another id, is not received`() throws {
        let ring = try KeyRing.random(createdAt: 1)
        let token = Token(id: Array("a".utf8), info: Array("info".utf8))
        func transferred(_ ring: KeyRing, key: [UInt8]? = nil) throws -> TransferRow {
            var coder = RowCoder(Sealing(.sealed(ring)))
            let row = try coder.row(of: token, writtenAt: 5)
            return try TransferRow(
                token, key: key ?? row.key.bytes, version: TokenVersion(rawValue: 1), times: row.times,
                keyNumber: row.keyNumber, value: row.value)
        }
        func receive(_ row: TransferRow) throws -> ReceivedRow {
            var coder = RowCoder(Sealing(.sealed(ring)))
            return try coder.receive(row)
        }
        guard case .token(let row, _) = try receive(try transferred(ring)) else {
            Issue.record("a token's row is received as that of a session")
            return
        }
        #expect(row.id == token.id && row.times.writtenAt == 5)
        let other = try transferred(try KeyRing.random(createdAt: 1))
        #expect(throws: SealingError.tampered(keyNumber: 1)) { _ = try receive(other) }
        let moved = try transferred(ring, key: [UInt8](repeating: 7, count: 32))
        #expect(throws: SealingError.tampered(keyNumber: 1)) { _ = try receive(moved) }
    }
}
