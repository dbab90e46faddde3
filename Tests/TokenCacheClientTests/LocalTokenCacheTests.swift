import Dispatch
import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

@Suite struct LocalTokenCacheTests {
    private let directory = TemporaryDirectory()
    private var folder: URL { URL(filePath: directory.path).appending(path: "tokens") }
    private let token = TokenInformation(token: "one", refreshDate: Date(timeIntervalSince1970: 1_700_000_000))

    private func files() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0 != ".lock" }
    }

    @Test func `a token is kept, replaced and cleared`() async throws {
        for cache in [LocalTokenCache(.directory(folder), user: "a"), LocalTokenCache(.memory, user: "a")] {
            #expect(try await cache.fetch() == nil)
            try await cache.clear()
            try await cache.store(token)
            #expect(try await cache.fetch() == token)
            var second = token
            second.token = "two"
            try await cache.store(second)
            #expect(try await cache.fetch() == second)
            try await cache.clear()
            #expect(try await cache.fetch() == nil)
        }
        #expect(try files().isEmpty)
    }

    @Test func `only the owner can read the file, and its name does not tell the user`() async throws {
        try await LocalTokenCache(.directory(folder), user: "a@example.com").store(token)
        let name = try #require(try files().first)
        #expect(try files().count == 1)
        #expect(!name.contains("example"))
        for (path, expected) in [(folder.path, 0o700), (folder.appending(path: name).path, 0o600)] {
            let attributes = try FileManager.default.attributesOfItem(atPath: path)
            #expect(attributes[.posixPermissions] as? Int == expected)
        }
    }

    @Test func `each user has a slot`() async throws {
        let caches = ["a", "b", "", "A", "../a", String(repeating: "x", count: 5_000)].map {
            LocalTokenCache(.directory(folder), user: $0)
        }
        for (index, cache) in caches.enumerated() { try await cache.store(TokenInformation(token: "token \(index)")) }
        for (index, cache) in caches.enumerated() { #expect(try await cache.fetch()?.token == "token \(index)") }
        #expect(try files().count == caches.count)
    }

    @Test func `an item of a later format is left alone`() async throws {
        let cache = LocalTokenCache(.directory(folder), user: "a")
        try await cache.store(token)
        let file = try folder.appending(path: #require(try files().first))
        try Data(#"{"format":2,"secret":"x"}"#.utf8).write(to: file)
        await #expect(throws: TokenCacheError.laterFormat(found: 2)) { try await cache.fetch() }
        await #expect(throws: TokenCacheError.laterFormat(found: 2)) { try await cache.store(token) }
        #expect(try Data(contentsOf: file) == Data(#"{"format":2,"secret":"x"}"#.utf8))
        // Signing out always works.
        try await cache.clear()
        #expect(try await cache.fetch() == nil)
    }

    @Test(arguments: [
        "", "{", "{}", #"{"format":1}"#, #"{"format":1,"user":"a","write":{"id":"b"}}"#, #"{"format":1,"user":"b"}"#,
        #"{"format":1,"user":"a","token_info":"{"}"#,
    ])
    func `a damaged item is unknown and can be replaced`(item: String) async throws {
        let cache = LocalTokenCache(.directory(folder), user: "a")
        try await cache.store(token)
        let file = try folder.appending(path: #require(try files().first))
        try Data(item.utf8).write(to: file)
        await #expect(throws: TokenCacheError.self) { try await cache.fetch() }
        try await cache.store(token)
        #expect(try await cache.fetch() == token)
    }

    @Test func `a place that cannot be used is unknown`() async throws {
        let file = URL(filePath: directory.path).appending(path: "file")
        try Data().write(to: file)
        let cache = LocalTokenCache(.directory(file), user: "a")
        await #expect(throws: TokenCacheError.self) { try await cache.fetch() }
        await #expect(throws: TokenCacheError.self) { try await cache.store(token) }
        await #expect(throws: TokenCacheError.self) { try await cache.clear() }
    }

    @Test func `a link in place of the file is not followed`() async throws {
        let cache = LocalTokenCache(.directory(folder), user: "a")
        try await cache.store(token)
        let file = try folder.appending(path: #require(try files().first))
        let target = URL(filePath: directory.path).appending(path: "target")
        try FileManager.default.moveItem(at: file, to: target)
        try FileManager.default.createSymbolicLink(at: file, withDestinationURL: target)
        await #expect(throws: TokenCacheError.self) { try await cache.fetch() }
    }

    @Test func `many tasks read only whole items`() async throws {
        let folder = folder
        try await withThrowingTaskGroup(of: Void.self) { group in
            for index in 0..<50 {
                group.addTask {
                    let cache = LocalTokenCache(.directory(folder), user: "a")
                    try await cache.store(
                        TokenInformation(token: String(repeating: "\(index % 10)", count: 20_000 + index)))
                    let read = try await cache.fetch()
                    let token = try #require(read).token
                    #expect(Set(token).count == 1)
                }
            }
            try await group.waitForAll()
        }
        #expect(try files().count == 1)
    }

    @Test func `nothing waits on the caller's actor`() async throws {
        let disk = TestStorage()
        let caller = Caller()
        try await caller.use(disk)
        #expect(await caller.isOnQueue)
        #expect(!disk.state.withLock { $0.wasOnCallersQueue })
    }

    @Test func `changes of several tasks and processes do not lose one another`() async throws {
        let folder = folder
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<100 {
                group.addTask {
                    try await LocalTokenCache(.directory(folder), user: "a").update { record in
                        let count = record.flatMap { Int($0.information?.token ?? "") } ?? 0
                        record = LocalRecord(TokenInformation(token: "\(count + 1)"))
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(try await LocalTokenCache(.directory(folder), user: "a").fetch()?.token == "100")
    }

    @Test func `a record comes back as it was`() throws {
        let write = LocalRecord.Write(
            id: "w", logins: ["1", "2"],
            credential: Credential(isSession: true, text: "tcs_a"))
        for base: TokenBase in [.anything, .nothing, .version(#""7""#), .content("abc"), .content("")] {
            for information in [nil, token] {
                for write in [nil, write, LocalRecord.Write()] {
                    let record = LocalRecord(information, base: base, write: write)
                    let (user, read) = try LocalRecord.read(record.data(of: "a"))
                    #expect(user == "a")
                    #expect(read.isSame(as: record))
                    #expect(read.information == information)
                }
            }
        }
    }

    @Test func `names are SHA-256`() {
        #expect(SHA256.hexadecimal("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        #expect(
            SHA256.hexadecimal("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
                == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1")
        #expect(
            SHA256.hexadecimal(String(repeating: "a", count: 1_000))
                == "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3")
    }
}

/// An actor with a thread of its own, as the main actor has.
private actor Caller {
    private final class Queue: SerialExecutor {
        private let queue = DispatchQueue(label: "caller")

        init() {
            queue.setSpecific(key: TestStorage.callersQueue, value: true)
        }

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
        }
    }

    private let queue = Queue()
    nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    var isOnQueue: Bool { DispatchQueue.getSpecific(key: TestStorage.callersQueue) == true }

    func use(_ disk: TestStorage) async throws {
        let cache = LocalTokenCache(disk, user: "a")
        try await cache.store(TokenInformation(token: "one"))
        _ = try await cache.fetch()
        let layered = LayeredTokenCache(local: cache, remote: MemoryCache())
        _ = try await layered.fetch()
        try await layered.clear()
        try await cache.clear()
    }
}
