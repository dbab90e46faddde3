import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct CacheTests {
    private let cache = TokenCache(limit: 1 << 20)

    private func permit(_ id: String, in cache: TokenCache, until deadline: Int64 = .max) -> CachePermit? {
        cache.ticket(for: Array(id.utf8).span).map { CachePermit(ticket: $0, deadline: deadline) }
    }

    private func put(_ value: String, _ id: String, until deadline: Int64 = .max, into cache: TokenCache) {
        guard let permit = permit(id, in: cache, until: deadline) else { return }
        cache.insert(Array(value.utf8).span, under: Array(id.utf8).span, permit)
    }

    private func found(_ id: String, at now: Int64 = 0, in cache: TokenCache) -> String? {
        var value: [UInt8] = []
        let isFound = cache.find(Array(id.utf8).span, at: now) { value.append(span: $0) }
        return isFound ? String(decoding: value, as: UTF8.self) : nil
    }

    private func hash(_ id: String) -> UInt64 { TokenCache.hash(of: Array(id.utf8).span) }

    @Test("what was put in is found under its id alone, and counted")
    func finding() {
        put("1", "a", into: cache)
        put("", "empty", into: cache)
        put("2", "a", into: cache)
        #expect(found("a", in: cache) == "2")
        #expect(found("empty", in: cache) == "")
        #expect(found("b", in: cache) == nil)
        #expect(cache.counts.hits == 2 && cache.counts.misses == 1 && cache.counts.entries == 2)
        cache.removeAll()
        #expect(found("a", in: cache) == nil)
        #expect(cache.counts.entries == 0 && cache.counts.bytes == 0)
    }

    @Test("what was read before a write began, or during it, does not get in")
    func lateInsertion() {
        let before = permit("a", in: cache)
        cache.beginWrite(hash("a"))
        #expect(permit("a", in: cache) == nil)
        cache.insert([1], "a", before)
        #expect(found("a", in: cache) == nil)
        cache.endWrite(hash("a"))
        cache.insert([1], "a", before)
        #expect(found("a", in: cache) == nil)
        put("new", "a", into: cache)
        #expect(found("a", in: cache) == "new")
        let permit = permit("a", in: cache)
        cache.removeAll()
        cache.insert([1], "a", permit)
        #expect(found("a", in: cache) == nil)
    }

    @Test("a write takes out what was there, also when several writes overlap")
    func overlappingWrites() {
        put("old", "a", into: cache)
        cache.beginWrite(hash("a"))
        cache.beginWrite(hash("a"))
        #expect(found("a", in: cache) == nil)
        cache.endWrite(hash("a"))
        put("early", "a", into: cache)
        #expect(found("a", in: cache) == nil)
        cache.endWrite(hash("a"))
        put("new", "a", into: cache)
        #expect(found("a", in: cache) == "new")
    }

    @Test("what has passed its time is not given")
    func deadlines() {
        put("1", "a", until: 100, into: cache)
        #expect(found("a", at: 99, in: cache) == "1")
        #expect(found("a", at: 100, in: cache) == nil)
    }

    @Test("it stays within its limit, keeps what is asked for, and takes nothing that is too large")
    func limit() {
        let cache = TokenCache(limit: 1 << 20)
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
        let none = TokenCache(limit: 0)
        put("1", "a", into: none)
        #expect(found("a", in: none) == nil)
    }

    @Test("it agrees with a dictionary whatever comes in whatever order")
    func model() {
        var generator = SystemRandomNumberGenerator()
        let cache = TokenCache(limit: 64 << 10)
        var model: [String: String] = [:]
        for step in 0..<50_000 {
            let id = "id\(Int.random(in: 0..<400, using: &generator))"
            switch Int.random(in: 0..<10, using: &generator) {
            case 0:
                cache.beginWrite(hash(id))
                cache.endWrite(hash(id))
                model[id] = nil
            case 1...4:
                let value = String(repeating: "v", count: Int.random(in: 0..<100, using: &generator)) + "\(step)"
                put(value, id, into: cache)
                model[id] = value
            default:
                // It may have been evicted, never be another one.
                if let value = found(id, in: cache) { #expect(value == model[id]) }
            }
        }
        #expect(cache.counts.hits > 5_000)
    }
}

extension TokenCache {
    fileprivate func insert(_ value: [UInt8], _ id: String, _ permit: CachePermit?) {
        if let permit { insert(value.span, under: Array(id.utf8).span, permit) }
    }
}

/// Each id is a register with one writer, whose values grow: a read must give at least what was acknowledged, or seen by
/// another read, before it began.
@Suite struct RegisterTests {
    private final class Register: Sendable {
        struct State {
            /// Acknowledged, or given by a read that is over.
            var certain = 0
            /// Handed over to be written.
            var begun = 0
        }

        let state = Mutex(State())
    }

    /// Goes on until the last writer is done.
    private final class Course: Sendable {
        let writers: Atomic<Int>

        init(writers: Int) {
            self.writers = Atomic(writers)
        }

        var isOver: Bool { writers.load(ordering: .relaxed) == 0 }
    }

    private static let registers = 8
    private static let writes = 80

    @Test("reads and writes at once behave as if each happened at one moment", arguments: [true, false])
    func history(_ isCached: Bool) async throws {
        let folder = try TemporaryDirectory()
        let store = try SQLiteTokenStore(at: folder.path + "/data") { $0.cacheLimit = isCached ? 1 << 20 : 0 }
        let administrator = StoreAdministrator(store)
        let registers = (0..<Self.registers).map { _ in Register() }
        let course = Course(writers: Self.registers)
        try await withThrowingTaskGroup { group in
            for (index, register) in registers.enumerated() {
                group.addTask {
                    let session = try await SessionActor.open(store)
                    defer { course.writers.subtract(1, ordering: .relaxed) }
                    for value in 1...Self.writes {
                        register.state.withLock { $0.begun = value }
                        if value % 7 == 0 {
                            let token = Token(id: Array("id\(index)".utf8), info: Array("\(value)".utf8))
                            _ = try await administrator.store([(token, nil)])[0].get()
                        } else {
                            try await session.put("\(value)", under: "id\(index)")
                        }
                        register.state.withLock { $0.certain = max($0.certain, value) }
                        // Between writes there is time for readers to remember.
                        try await Task.sleep(for: .microseconds(Int.random(in: 0...4_000)))
                    }
                }
            }
            for _ in 0..<4 {
                group.addTask {
                    let session = try await SessionActor.open(store)
                    while !course.isOver {
                        let index = Int.random(in: 0..<Self.registers)
                        let register = registers[index]
                        let least = register.state.withLock(\.certain)
                        let value = Int(try await session.answer("id\(index)") ?? "0") ?? -1
                        let most = register.state.withLock { state in
                            state.certain = max(state.certain, value)
                            return state.begun
                        }
                        #expect(value >= least && value <= most, "id\(index): \(least)...\(most)")
                        if Bool.random() { await session.flush() }
                        // An actor that is free is entered without giving others their turn.
                        await Task.yield()
                    }
                }
            }
            // Rows that are sealed anew say what they said before.
            group.addTask {
                while !course.isOver {
                    _ = try await administrator.addKey()
                    _ = try await administrator.rekey { _ in }
                    try await Task.sleep(for: .milliseconds(50))
                }
            }
            try await group.waitForAll()
        }
        let counts = store.state.cache.counts
        #expect((counts.hits > 0) == isCached)
        store.close()
    }

    @Test("what is removed, replaced by a command or over its time is not given from memory")
    func changes() async throws {
        let folder = try TemporaryDirectory()
        let store = try SQLiteTokenStore(at: folder.path + "/data") {
            $0.retention = Retention(sinceWritten: .seconds(3_600))
        }
        defer { store.close() }
        let administrator = StoreAdministrator(store)
        let session = try await SessionActor.open(store)
        try await session.put("1", under: "a")
        #expect(try await session.answer("a") == "1")
        #expect(try await session.answer("a") == "1")
        _ = await administrator.store([(Token(id: Array("a".utf8), info: Array("2".utf8)), nil)])
        #expect(try await session.answer("a") == "2")
        #expect(try await administrator.remove([Array("a".utf8)]) == 1)
        #expect(try await session.answer("a") == nil)
        // Written so long ago that it has a few seconds left, in which it gets into memory.
        let writtenAt = Int64(Date.now.timeIntervalSince1970) - 3_595
        _ = await administrator.store([(Token(id: Array("a".utf8), info: Array("3".utf8)), writtenAt)])
        while let answer = try await session.answer("a") {
            #expect(answer == "3")
            try #require(Date.now.timeIntervalSince1970 < Double(writtenAt + 3_600 + 60), "it is given beyond its time")
            try await Task.sleep(for: .milliseconds(100))
        }
        #expect(Date.now.timeIntervalSince1970 >= Double(writtenAt + 3_600))
    }
}
