import Cryptography
import Testing

@testable import TokenStore

@Suite struct RowCoderTests {
    private let ring: KeyRing

    init() throws {
        ring = KeyRing.random(createdAt: 1)
    }

    private func coder() -> RowCoder { RowCoder(Sealing(ring)) }

    @Test func `a row gives its token back, and one with the key of another row does not`() throws {
        var coder = coder()
        let token = Token(id: Array("id".utf8), info: Array("info".utf8))
        let row = try coder.row(of: token, writtenAt: 5)
        #expect(row.times.writtenAt == 5 && row.keyNumber == 1)
        #expect(row.key.bytes == KeyedHash(ring.index).mac(of: token.id.span))
        let opened = try coder.token(
            of: row.value.span, keyNumber: row.keyNumber, key: row.key.bytes, times: row.times)
        #expect(opened == token)
        var info = Array("before ".utf8)
        try coder.appendTokenInfo(
            of: row.value.span, keyNumber: row.keyNumber, key: row.key.bytes, times: row.times, to: &info)
        #expect(info == Array("before info".utf8))
        let other = try coder.row(of: Token(id: Array("other".utf8), info: []))
        #expect(throws: SealingError.tampered(keyNumber: 1)) {
            var coder = self.coder()
            _ = try coder.token(
                of: row.value.span, keyNumber: row.keyNumber, key: other.key.bytes, times: row.times)
        }
    }

    @Test func `no beginning of a sealed value opens`() throws {
        var coder = coder()
        let row = try coder.row(of: Token(id: Array("id".utf8), info: Array("info".utf8)))
        for count in 0..<row.value.count {
            let value = Array(row.value.prefix(count))
            // A nonce, the length of an id and a tag take 42 bytes: with less, opening is not even tried.
            #expect(throws: count < 42 ? SealingError.malformed : .tampered(keyNumber: 1)) {
                var coder = self.coder()
                _ = try coder.token(of: value.span, keyNumber: row.keyNumber, key: row.key.bytes, times: row.times)
            }
        }
    }

    @Test func `bytes that a hash lacks count as zeros in its prefix`() {
        #expect(RowKey(bytes: [1, 2, 3, 4, 5, 6, 7, 8, 9]).hashPrefix == 0x0102_0304_0506_0708)
        #expect(RowKey(bytes: [1, 2]).hashPrefix == 0x0102_0000_0000_0000)
        #expect(RowKey().hashPrefix == 0)
    }

    @Test func `a session's row gives the session and its key back, and only in its own place`() throws {
        var coder = coder()
        let session = UserSession(
            id: .random(), user: Array("anna".utf8), createdAt: 1, expiresAt: 2, lastUsedAt: 1)
        let secret = Array("secret".utf8)
        let key = coder.sessionKey(of: secret.span)
        let row = try coder.row(of: session, key)
        #expect(row.key != key.bytes && row.userKey == KeyedHash(ring.index).mac(of: session.user.span))
        func stored(createdAt: Int64) -> SessionRow {
            SessionRow(
                key: row.key, id: row.id, userKey: row.userKey, keyNumber: row.keyNumber, user: row.user,
                createdAt: createdAt, expiresAt: row.expiresAt, usedAt: row.usedAt, number: 1)
        }
        let opened = try coder.open(stored(createdAt: 1))
        #expect(opened.session == session && opened.key == key)
        #expect(throws: SealingError.tampered(keyNumber: 1)) {
            var coder = self.coder()
            _ = try coder.open(stored(createdAt: 3))
        }
    }
}
