import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import TokenService

@Suite struct SessionCacheTests {
    private static func text(_ number: Int) -> [UInt8] {
        var generator = SeededGenerator(seed: UInt64(number))
        var bytes: [UInt8] = []
        for _ in 0..<SessionSecret.length { bytes.append(UInt8.random(in: 0...255, using: &generator)) }
        return SessionSecret.text(of: bytes.span)
    }

    private static func find(_ text: [UInt8], in cache: SessionCache) -> SessionCache.Entry? { cache.find(text.span) }

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
        cache.insert(SessionCache.Entry(session(user), key(number), text(number), nil, ticket))
    }

    @Test
    func `a session is found by its text alone, of which each byte counts`() {
        let cache = SessionCache(limit: 1 << 20)
        Self.insert(1, into: cache)
        let original = Self.text(1)
        var others = [Array(original.dropLast()), original + [0x61], [], Array("TCS_".utf8) + original.dropFirst(4)]
        for index in original.indices {
            others.append(original)
            others[others.count - 1][index] ^= 1
        }
        for other in others { #expect(Self.find(other, in: cache) == nil) }
        #expect(Self.find(original, in: cache)?.session.user == Array("anna".utf8))
        #expect(cache.counts.hits == 1 && cache.counts.misses == others.count)
        for other in others.prefix(4) {
            let isText = SessionSecret.isText(other.span)
            #expect(!isText)
        }
    }

    @Test
    func `from the announcement on, an ended session is not found`() {
        let cache = SessionCache(limit: 1 << 20)
        Self.insert(1, into: cache)
        let entry = Self.find(Self.text(1), in: cache)
        cache.willEnd([Self.key(1)])
        #expect(Self.find(Self.text(1), in: cache) == nil)
        #expect(entry.map { cache.isValid($0) } == false)
        // What is read now may be what is about to end.
        Self.insert(1, into: cache)
        #expect(Self.find(Self.text(1), in: cache) == nil)
        cache.didEnd([Self.key(1)])
        #expect(Self.find(Self.text(1), in: cache) == nil)
        // The end has failed, and the store still has the session.
        Self.insert(1, into: cache)
        #expect(Self.find(Self.text(1), in: cache) != nil)
    }

    @Test
    func `a session that was read before another one's end is not kept if they share a group`() {
        let cache = SessionCache(limit: 1 << 20)
        let ticket = cache.ticket(for: Self.key(1))
        cache.willEnd([Self.key(1)])
        cache.didEnd([Self.key(1)])
        cache.insert(SessionCache.Entry(Self.session("anna"), Self.key(1), Self.text(1), nil, ticket))
        #expect(Self.find(Self.text(1), in: cache) == nil)
    }

    @Test
    func `many ends at a time are counted one by one`() {
        let cache = SessionCache(limit: 1 << 20)
        let keys = (0..<10_000).map { Self.key($0 % 50) }
        cache.willEnd(keys)
        cache.didEnd(Array(keys.dropLast()))
        // One is still under way; it is that of key 49.
        Self.insert(49, into: cache)
        #expect(Self.find(Self.text(49), in: cache) == nil)
        cache.didEnd([keys[9_999]])
        Self.insert(49, into: cache)
        #expect(Self.find(Self.text(49), in: cache) != nil)
    }

    @Test
    func `after a change of everything all sessions are read again`() {
        let cache = SessionCache(limit: 1 << 20)
        for number in 0..<100 { Self.insert(number, into: cache) }
        cache.didChangeEverything()
        for number in 0..<100 { #expect(Self.find(Self.text(number), in: cache) == nil) }
    }

    @Test
    func `the limit holds however many sessions come, and those in use stay`() {
        let limit = 256 << 10
        let cache = SessionCache(limit: limit)
        Self.insert(0, into: cache)
        for number in 1..<20_000 {
            Self.insert(number, into: cache)
            #expect(Self.find(Self.text(0), in: cache) != nil)
        }
        #expect(cache.counts.bytes <= limit)
        #expect(cache.counts.bytes >= limit / 4)
        // A user with a long name costs as much as it takes.
        Self.insert(1, user: String(repeating: "x", count: limit), into: cache)
        #expect(cache.counts.bytes <= limit)
    }

    @Test
    func `with a limit of 0 nothing is kept`() {
        let cache = SessionCache(limit: 0)
        Self.insert(1, into: cache)
        #expect(Self.find(Self.text(1), in: cache) == nil)
        #expect(cache.counts.bytes == 0)
    }
}
