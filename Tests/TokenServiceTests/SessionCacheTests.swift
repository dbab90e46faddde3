import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import TokenService

@Suite struct SessionCacheTests {
    private static func text(_ number: Int) -> SessionText {
        var generator = SeededGenerator(seed: UInt64(number))
        var bytes: [UInt8] = []
        for _ in 0..<SessionSecret.length { bytes.append(UInt8.random(in: 0...255, using: &generator)) }
        let text = SessionSecret.text(of: bytes.span)
        guard let session = SessionText(text.span) else { fatalError("the text has the form of a session") }
        return session
    }

    private static func key(_ number: Int) -> SessionKey {
        var generator = SeededGenerator(seed: UInt64(number))
        var bytes: [UInt8] = []
        for _ in 0..<SessionKey.length { bytes.append(UInt8.random(in: 0...255, using: &generator)) }
        return SessionKey(bytes.span)
    }

    private static func session(_ user: String, usedAt: Int64 = 0) -> UserSession {
        UserSession(
            id: SessionID([UInt8](repeating: 1, count: 16)), user: Array(user.utf8), createdAt: 0, expiresAt: .max,
            lastUsedAt: usedAt)
    }

    private static func insert(_ number: Int, user: String = "anna", into cache: SessionCache) {
        let ticket = cache.ticket(for: key(number))
        cache.insert(SessionCache.Entry(session(user), key(number), nil, ticket), under: text(number))
    }

    @Test
    func `a session is found by its text alone`() {
        let cache = SessionCache(limit: 1 << 20)
        Self.insert(1, into: cache)
        #expect(cache.find(Self.text(1))?.session.user == Array("anna".utf8))
        #expect(cache.find(Self.text(2)) == nil)
        #expect(cache.counts.hits == 1)
        #expect(cache.counts.misses == 1)
    }

    @Test
    func `each byte of the text counts`() {
        let original = Array("tcs_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ".utf8)
        let session = SessionText(original.span)
        #expect(session != nil)
        for index in original.indices {
            var other = original
            other[index] ^= 1
            let changed = SessionText(other.span)
            #expect(changed != session)
        }
        let others = [
            Array("TCS_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ".utf8), Array(original.dropLast()),
            original + [0x61], [],
        ]
        for other in others {
            let session = SessionText(other.span)
            #expect(session == nil)
        }
    }

    @Test
    func `from the announcement on, an ended session is not found`() {
        let cache = SessionCache(limit: 1 << 20)
        Self.insert(1, into: cache)
        let entry = cache.find(Self.text(1))
        cache.willEnd([Self.key(1)])
        #expect(cache.find(Self.text(1)) == nil)
        #expect(entry.map { cache.isValid($0) } == false)
        // What is read now may be what is about to end.
        Self.insert(1, into: cache)
        #expect(cache.find(Self.text(1)) == nil)
        cache.didEnd([Self.key(1)])
        #expect(cache.find(Self.text(1)) == nil)
        // The end has failed, and the store still has the session.
        Self.insert(1, into: cache)
        #expect(cache.find(Self.text(1)) != nil)
    }

    @Test
    func `a session that was read before another one's end is not kept if they share a group`() {
        let cache = SessionCache(limit: 1 << 20)
        let ticket = cache.ticket(for: Self.key(1))
        cache.willEnd([Self.key(1)])
        cache.didEnd([Self.key(1)])
        cache.insert(SessionCache.Entry(Self.session("anna"), Self.key(1), nil, ticket), under: Self.text(1))
        #expect(cache.find(Self.text(1)) == nil)
    }

    @Test
    func `many ends at a time are counted one by one`() {
        let cache = SessionCache(limit: 1 << 20)
        let keys = (0..<10_000).map { Self.key($0 % 50) }
        cache.willEnd(keys)
        cache.didEnd(Array(keys.dropLast()))
        // One is still under way; it is that of key 49.
        Self.insert(49, into: cache)
        #expect(cache.find(Self.text(49)) == nil)
        cache.didEnd([keys[9_999]])
        Self.insert(49, into: cache)
        #expect(cache.find(Self.text(49)) != nil)
    }

    @Test
    func `after a change of everything all sessions are read again`() {
        let cache = SessionCache(limit: 1 << 20)
        for number in 0..<100 { Self.insert(number, into: cache) }
        cache.didChangeEverything()
        for number in 0..<100 { #expect(cache.find(Self.text(number)) == nil) }
    }

    @Test
    func `the limit holds however many sessions come, and those in use stay`() {
        let limit = 256 << 10
        let cache = SessionCache(limit: limit)
        Self.insert(0, into: cache)
        for number in 1..<20_000 {
            Self.insert(number, into: cache)
            #expect(cache.find(Self.text(0)) != nil)
        }
        #expect(cache.counts.bytes <= limit)
        #expect(cache.counts.bytes >= limit / 4)
        // A user with a long name costs as much as it takes.
        Self.insert(1, user: String(repeating: "x", count: limit), into: cache)
        #expect(cache.counts.bytes <= limit)
    }

    @Test
    func `without memory nothing is kept`() {
        let cache = SessionCache(limit: 0)
        Self.insert(1, into: cache)
        #expect(cache.find(Self.text(1)) == nil)
        #expect(cache.counts.bytes == 0)
    }
}
