import Testing

@testable import TokenStore

@Suite struct RowCoderTests {
    private let ring: KeyRing

    init() throws {
        ring = KeyRing.random(createdAt: 1)
    }

    private func coder(_ isSealed: Bool) -> RowCoder {
        RowCoder(Sealing(isSealed ? .sealed(ring) : .clear(index: ring.index)))
    }

    @Test(arguments: [true, false])
    func `a row gives its token back, and one with the key of another row does not`(isSealed: Bool) throws {
        var coder = coder(isSealed)
        let token = Token(id: Array("id".utf8), info: Array("info".utf8))
        let row = try coder.row(of: token, writtenAt: 5)
        #expect(row.times.writtenAt == 5 && row.keyNumber == (isSealed ? 1 : 0))
        #expect((row.key.bytes == token.id) == !isSealed && (row.value == token.info) == !isSealed)
        let opened = try coder.token(
            of: row.value.span, keyNumber: row.keyNumber, key: row.key.bytes, times: row.times)
        #expect(opened == token)
        var info = Array("before ".utf8)
        try coder.appendTokenInfo(
            of: row.value.span, keyNumber: row.keyNumber, key: row.key.bytes, times: row.times, to: &info)
        #expect(info == Array("before info".utf8))
        guard isSealed else { return }
        let other = try coder.row(of: Token(id: Array("other".utf8), info: []))
        #expect(throws: SealingError.tampered(keyNumber: 1)) {
            var coder = self.coder(true)
            _ = try coder.token(
                of: row.value.span, keyNumber: row.keyNumber, key: other.key.bytes, times: row.times)
        }
    }

    @Test func `no beginning of a sealed value opens`() throws {
        var coder = coder(true)
        let row = try coder.row(of: Token(id: Array("id".utf8), info: Array("info".utf8)))
        for count in 0..<row.value.count {
            let value = Array(row.value.prefix(count))
            // A nonce, the length of an id and a tag take 42 bytes: with less, opening is not even tried.
            #expect(throws: count < 42 ? SealingError.malformed : .tampered(keyNumber: 1)) {
                var coder = self.coder(true)
                _ = try coder.token(of: value.span, keyNumber: row.keyNumber, key: row.key.bytes, times: row.times)
            }
        }
    }

    @Test func `the prefix is that of the keyed hash, whether the store is sealed or not`() throws {
        var sealed = coder(true)
        var clear = coder(false)
        let id = Array("id".utf8)
        var (hashed, plain) = (RowKey(), RowKey())
        sealed.key(of: id, into: &hashed)
        clear.key(of: id, into: &plain)
        #expect(plain.bytes == id && hashed.bytes.count == 32)
        #expect(hashed.hashPrefix == hashed.bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) })
        #expect(plain.hashPrefix == hashed.hashPrefix)
        let prefixes = [sealed.hashPrefix(of: hashed.bytes), clear.hashPrefix(of: plain.bytes)]
        #expect(prefixes == [hashed.hashPrefix, hashed.hashPrefix])
    }

    @Test func `bytes that a hash lacks count as zeros in its prefix`() {
        #expect(RowKey.prefix(of: [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 0x0102_0304_0506_0708)
        #expect(RowKey.prefix(of: [1, 2]) == 0x0102_0000_0000_0000)
        #expect(RowKey.prefix(of: []) == 0)
    }

    @Test(arguments: [true, false])
    func `a session's row gives the session and its key back, and only in its own place`(isSealed: Bool) throws {
        var coder = coder(isSealed)
        let session = UserSession(
            id: .random(), user: Array("anna".utf8), createdAt: 1, expiresAt: 2, lastUsedAt: 1)
        let secret = Array("secret".utf8)
        let key = coder.sessionKey(of: secret.span)
        let row = try coder.row(of: session, key)
        #expect((row.key == key.bytes) == !isSealed && (row.userKey == session.user) == !isSealed)
        func stored(createdAt: Int64) -> SessionRow {
            SessionRow(
                key: row.key, id: row.id, userKey: row.userKey, keyNumber: row.keyNumber, user: row.user,
                createdAt: createdAt, expiresAt: row.expiresAt, usedAt: row.usedAt, number: 1)
        }
        let opened = try coder.open(stored(createdAt: 1))
        #expect(opened.session == session && opened.key == key)
        guard isSealed else { return }
        #expect(throws: SealingError.tampered(keyNumber: 1)) {
            var coder = self.coder(true)
            _ = try coder.open(stored(createdAt: 3))
        }
    }
}
