import Foundation
import Testing

@testable import TokenCacheClient

extension LayeredTokenCacheTests {
    // MARK: - Disks

    @Test(arguments: ["", "{", "{}", #"{"format":1,"user":"a","write":{}}"#])
    func `a damaged item is replaced by the server's answer, or the next login`(item: String) async throws {
        let damaged = Data(item.utf8)
        let one = token("one")
        try await server.store(one)
        disk.state.withLock { $0.item = damaged }
        #expect(try await layered().fetch() == one)
        disk.state.withLock { $0.item = damaged }
        server.fail()
        await #expect(throws: Trouble.self) { try await layered().fetch() }
        server.contents.current = MemoryCache.Contents()
        let session = patientSession(cache: layered())
        #expect(try await session.open { token("two") } == .open)
        #expect(disk.information?.token == "two")
        #expect(server.information?.token == "two")
    }

    @Test(arguments: [TokenCacheError.locked, .storage(operation: "read", code: 5)])
    func `a sign-out that waits is not undone while it cannot be read`(error: TokenCacheError) async throws {
        let cache = layered()
        try await cache.store(token("one"))
        server.fail()
        try await cache.clear()
        server.fail(false)
        disk.state.withLock { $0.readError = error }
        let session = patientSession(cache: layered())
        await #expect(throws: error) { try await session.open() }
        #expect(session.state == .created)
        disk.state.withLock { $0.readError = nil }
        #expect(try await session.open() == .created)
        #expect(server.information == nil)
    }

    @Test func `unreadable content on the server is replaced by the next login`() async throws {
        for hasVersions in [true, false] {
            let server = VersionedServer(hasVersions: hasVersions)
            server.put(#"{"cut at "#)
            let identity: RemoteTokenCache.Identity = hasVersions ? .session { _ in "tcs_a" } : .uniqueID("a")
            let cache = layered(disk: TestStorage(), remote: try remote(identity, server.transport()))
            let session = patientSession(cache: cache)
            await #expect(throws: TokenCacheError.self) { try await session.open() }
            #expect(try await session.open { token("two") } == .open)
            #expect(server.row.withLock { $0.text }?.contains("two") == true)
            // A write that has waited replaces it as well.
            server.isDown.current = true
            try await cache.store(token("three"))
            server.row.withLock { $0.text = "{" }
            server.isDown.current = false
            try await cache.synchronize()
            #expect(server.row.withLock { $0.text }?.contains("three") == true)
        }
    }

    @Test func `on a full disk a sign-out clears the device and the server, and says what is not queued`() async throws
    {
        for isReachable in [true, false] {
            let disk = TestStorage()
            server.fail(false)
            let cache = layered(disk: disk, patience: isReachable ? .seconds(20) : .milliseconds(50))
            try await cache.store(token("one"))
            try await cache.synchronize()
            let session = patientSession(cache: cache)
            try await session.open()
            server.fail(!isReachable)
            disk.fillDisk()
            if isReachable {
                try await session.signOut()
            } else {
                await #expect(throws: TestStorage.full) { try await session.signOut() }
                #expect(server.information != nil)
            }
            #expect(disk.information == nil)
            server.fail(false)
            // The sign-out is lost only if the process ends.
            try await cache.synchronize()
            #expect(server.information == nil)
            disk.fillDisk(false)
            #expect(try await cache.fetch() == nil)
        }
    }

    @Test func `on a full disk a token is sent, and what could not be kept is said`() async throws {
        let cache = layered()
        try await cache.store(token("one"))
        disk.fillDisk()
        let two = token("two")
        await #expect(throws: TestStorage.full) { try await cache.store(two) }
        #expect(server.information == two)
        #expect(try await cache.fetch() == two)
        disk.fillDisk(false)
        #expect(try await layered().fetch() == two)
        #expect(disk.information == two)
    }

    @Test func `a login that could not be saved ends when the user signs out elsewhere`() async throws {
        let clock = TestClock()
        disk.fillDisk()
        let session = patientSession(cache: layered(), now: { clock.now })
        try await session.open { TokenInformation(token: "one", refreshDate: clock.now) }
        #expect(await session.cachingError != nil)
        #expect(server.information?.token == "one")
        let other = patientSession(cache: layered(disk: TestStorage()))
        try await other.open()
        #expect(try await other.signOut())
        clock.advance(by: 61)
        #expect(try await session.reload() == .closed)
        await session.close()
        #expect(server.information == nil)
    }

    @Test func `a token that could not be saved is replaced by another device's when it expires`() async throws {
        let clock = TestClock()
        disk.fillDisk()
        let session = patientSession(cache: layered(), now: { clock.now })
        var one = token("one")
        one.expirationDate = clock.now + 3_600
        try await session.open { [one] in one }
        let two = token("two", at: 7_200)
        try await server.store(two)
        clock.advance(by: 7_200)
        #expect(try await session.token() == two)
        #expect(await session.cachingError == nil)
    }

    @Test func `on a full disk, nothing stays of a user who has signed out`() async throws {
        let cache = layered()
        try await cache.store(token("one"))
        server.fail()
        try await cache.clear()
        disk.fillDisk()
        server.fail(false)
        try await cache.synchronize()
        #expect(disk.state.withLock { $0.item } == nil && !isQueued)
    }

    @Test func `on a full disk the server's answers count, and a sign-out elsewhere clears the device`() async throws {
        let cache = layered()
        let (two, three) = (token("two"), token("three"))
        try await cache.store(token("one"))
        try await cache.synchronize()
        disk.fillDisk()
        try await server.store(two)
        #expect(try await cache.fetch() == two)
        server.fail()
        #expect(try await cache.fetch() == two)
        server.fail(false)
        // What another process has saved since is not replaced by an answer of before.
        disk.fillDisk(false)
        let other = layered()
        #expect(try await other.fetch() == two)
        try await other.store(three)
        try await cache.change(isKept: true) { $0?.refused = "a" }
        #expect(disk.information == three)
        #expect(disk.record?.refused == "a")
        #expect(try await cache.fetch() == three)
        disk.fillDisk()
        try await server.clear()
        for isReachable in [true, true, false] {
            server.fail(!isReachable)
            #expect(try await cache.fetch() == nil)
            #expect(disk.state.withLock { $0.item } == nil)
        }
    }

    @Test func `after an answer that could not be saved, the write of another process is seen and sent`() async throws {
        let cache = layered()
        try await cache.store(token("one"))
        try await cache.synchronize()
        disk.fillDisk()
        let two = token("two")
        try await server.store(two)
        #expect(try await cache.fetch() == two)
        disk.fillDisk(false)
        server.fail()
        let other = layered()
        try await other.clear()
        #expect(try await cache.record()?.information == nil)
        server.fail(false)
        try await cache.synchronize()
        #expect(!isQueued)
    }

    @Test func `a record of a later format is left alone until somebody signs out`() async throws {
        let later = Data(#"{"format":2}"#.utf8)
        disk.state.withLock { $0.item = later }
        let one = token("one")
        try await server.store(one)
        let cache = layered()
        #expect(try await cache.fetch() == one)
        #expect(disk.state.withLock { $0.item } == later)
        try await cache.clear()
        #expect(disk.information == nil)
        #expect(server.information == nil)
    }

    // MARK: - Refusals

    @Test(arguments: [
        TokenCacheError.unauthorized(), .forbidden(), .refused(status: 413, code: "41300"),
    ])
    func `what is refused for good is told, and tried again when the app asks`(error: TokenCacheError) async throws {
        server.fail(true, error)
        // Its waits end at once.
        let cache = layeredCache(server, on: disk, clock: HastyClock(longest: .seconds(3_000)))
        let session = patientSession(cache: cache)
        var events = session.events.makeAsyncIterator()
        let one = token("one")
        try await cache.store(one)
        guard case .cachingFailed(let told)? = await events.next() else { throw Trouble() }
        #expect(told as? TokenCacheError == error)
        for _ in 0..<100 { await Task.yield() }
        #expect(server.done == ["store"])
        #expect(await cache.remoteError as? TokenCacheError == error)
        server.fail(false)
        #expect(try await cache.fetch() == one)
        try await until { server.information == one }
        try await until { await cache.remoteError == nil }
    }

    @Test func `a sign-out is sent after a token that was refused for good meanwhile`() async throws {
        let cache = layered()
        try await cache.store(token("one"))
        server.contents.withLock { $0.storeError = TokenCacheError.refused(status: 413, code: "41300") }
        server.gate.shut()
        let storing = Task { try await cache.store(token("too long")) }
        await server.gate.reached()
        let clearing = Task { try await cache.clear() }
        try await until { disk.record?.information == nil }
        server.gate.open()
        _ = try await (storing.value, clearing.value)
        #expect(server.information == nil)
        #expect(!isQueued)
    }
}
