import Cryptography
import Synchronization
import Testing
import TokenStore

@testable import TokenService

@Suite struct AnswerCacheTests {
    private let cache = AnswerCache(limit: 1 << 20)

    private func ticket(_ id: String) -> ChangeVersions.Ticket {
        cache.ticket(for: Array(id.utf8).span)
    }

    private func put(_ value: String, _ id: String, until deadline: Int64 = .max, into cache: AnswerCache) {
        let ticket = cache.ticket(for: Array(id.utf8).span)
        cache.insert(Array(value.utf8).span, under: Array(id.utf8).span, ticket, until: deadline, version: 7)
    }

    private func found(_ id: String, at now: Int64 = 0, in cache: AnswerCache) -> String? {
        var value: [UInt8] = []
        let version = cache.find(Array(id.utf8).span, at: now) { value.append(span: $0) }
        return version == 7 ? String(decoding: value, as: UTF8.self) : nil
    }

    @Test("an answer is found under its id alone, and counted")
    func finding() {
        put("1", "a", into: cache)
        put("", "empty", into: cache)
        put("2", "a", into: cache)
        #expect(found("a", in: cache) == "2")
        #expect(found("empty", in: cache) == "")
        #expect(found("b", in: cache) == nil)
        #expect(cache.counts.hits == 2 && cache.counts.misses == 1 && cache.counts.entries == 2)
        let bytes = cache.counts.bytes
        for value in 0..<10 { put("\(value)", "a", into: cache) }
        #expect(found("a", in: cache) == "9" && cache.counts.bytes == bytes)
        cache.didChangeEverything()
        #expect(found("a", in: cache) == nil)
        #expect(cache.counts.entries == 0 && cache.counts.bytes == 0)
    }

    @Test("an answer that was read before or during a write is not kept")
    func lateInsertion() {
        let before = ticket("a")
        cache.willWrite([Array("a".utf8)])
        let during = ticket("a")
        for ticket in [before, during] { cache.insert([1], "a", ticket) }
        #expect(found("a", in: cache) == nil)
        cache.didWrite([Array("a".utf8)])
        for ticket in [before, during] { cache.insert([1], "a", ticket) }
        #expect(found("a", in: cache) == nil)
        put("new", "a", into: cache)
        #expect(found("a", in: cache) == "new")
        let ticket = ticket("a")
        cache.didChangeEverything()
        cache.insert([1], "a", ticket)
        #expect(found("a", in: cache) == nil)
    }

    @Test("a write removes the answer, also when several writes overlap")
    func overlappingWrites() {
        put("old", "a", into: cache)
        cache.willWrite([Array("a".utf8)])
        cache.willWrite([Array("a".utf8)])
        #expect(found("a", in: cache) == nil)
        cache.didWrite([Array("a".utf8)])
        put("early", "a", into: cache)
        #expect(found("a", in: cache) == nil)
        cache.didWrite([Array("a".utf8)])
        put("new", "a", into: cache)
        #expect(found("a", in: cache) == "new")
    }

    @Test("an answer that has expired is not found")
    func deadlines() {
        put("1", "a", until: 100, into: cache)
        #expect(found("a", at: 99, in: cache) == "1")
        #expect(found("a", at: 100, in: cache) == nil)
        // The store deletes while the clock is ahead.
        put("2", "b", until: 101, into: cache)
        for time: Int64 in [100, 50] { cache.willExpire(until: time) }
        for _ in 1...2 {
            #expect(found("a", at: 50, in: cache) == nil)
            put("1", "a", until: 100, into: cache)
        }
        #expect(found("b", at: 50, in: cache) == "2")
    }

    @Test("the cache stays within its limit, keeps answers in use, and takes no large one")
    func limit() {
        let cache = AnswerCache(limit: 1 << 20)
        let value = String(repeating: "x", count: 300)
        put("kept", "favourite", into: cache)
        for number in 0..<20_000 {
            put(value, "id\(number)", into: cache)
            #expect(cache.counts.bytes <= 1 << 20)
            if number % 10 == 0 { #expect(found("favourite", in: cache) == "kept") }
        }
        #expect(cache.counts.entries > 1_500)
        #expect(found("id19999", in: cache) == value)
        #expect(found("id0", in: cache) == nil)
        put(String(repeating: "x", count: 1 << 16), "large", into: cache)
        #expect(found("large", in: cache) == nil)
        let none = AnswerCache(limit: 0)
        put("1", "a", into: none)
        #expect(found("a", in: none) == nil)
    }

    @Test("whatever threads read, write and keep at once, nothing older is found than what was acknowledged before")
    func races() async {
        final class Store: Sendable {
            let value = Atomic(0)
            let acknowledged = Atomic(0)
            let found = Atomic(0)
        }
        let (cache, store, id) = (AnswerCache(limit: 1 << 20), Store(), Array("a".utf8))
        let last = 20_000
        let older = await withTaskGroup(returning: Int.self) { group in
            group.addTask {
                for value in 1...last {
                    cache.willWrite([id])
                    store.value.store(value, ordering: .sequentiallyConsistent)
                    cache.didWrite([id])
                    store.acknowledged.store(value, ordering: .sequentiallyConsistent)
                    // So that each write removes an answer.
                    while store.found.load(ordering: .relaxed) < value { await Task.yield() }
                }
                return 0
            }
            group.addTask {
                var older = 0
                while store.found.load(ordering: .relaxed) < last {
                    let acknowledged = store.acknowledged.load(ordering: .sequentiallyConsistent)
                    var text: [UInt8] = []
                    if cache.find(id.span, at: 0, { text.append(span: $0) }) != nil {
                        let value = Int(String(decoding: text, as: UTF8.self)) ?? 0
                        if value < acknowledged { older += 1 }
                        // Goes on also with a cache that keeps what is older.
                        store.found.store(max(value, acknowledged), ordering: .relaxed)
                    }
                    let ticket = cache.ticket(for: id.span)
                    let value = store.value.load(ordering: .sequentiallyConsistent)
                    cache.insert(Array("\(value)".utf8), "a", ticket)
                    await Task.yield()
                }
                return older
            }
            return await group.reduce(0, +)
        }
        #expect(older == 0)
    }

    @Test("the cache agrees with a dictionary in any order of calls")
    func model() {
        var generator = SystemRandomNumberGenerator()
        let cache = AnswerCache(limit: 64 << 10)
        var model: [String: String] = [:]
        for step in 0..<50_000 {
            let id = "id\(Int.random(in: 0..<400, using: &generator))"
            switch Int.random(in: 0..<10, using: &generator) {
            case 0:
                cache.willWrite([Array(id.utf8)])
                cache.didWrite([Array(id.utf8)])
                model[id] = nil
            case 1...4:
                let value = String(repeating: "v", count: Int.random(in: 0..<100, using: &generator)) + "\(step)"
                put(value, id, into: cache)
                model[id] = value
            default:
                // It may have been evicted, but it is never another one.
                if let value = found(id, in: cache) { #expect(value == model[id]) }
            }
        }
        #expect(cache.counts.hits > 5_000)
    }
}

extension AnswerCache {
    fileprivate func insert(_ value: [UInt8], _ id: String, _ ticket: ChangeVersions.Ticket) {
        insert(value.span, under: Array(id.utf8).span, ticket, until: .max, version: 7)
    }
}
