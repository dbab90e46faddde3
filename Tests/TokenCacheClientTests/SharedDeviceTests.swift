import Dispatch
import Foundation
import Testing

@testable import TokenCacheClient

/// Two processes of one device, such as an app and its extension.
@Suite struct SharedDeviceTests {
    private let disk = TestStorage()
    private let server = VersionedServer()

    /// The cache of a process.
    private func process(_ transport: (any Transport)? = nil) throws -> LayeredTokenCache {
        layeredCache(try remote(.session { _ in "tcs_a" }, transport ?? server.transport()), on: disk)
    }

    @Test(arguments: [true, false])
    func `a refresh does not undo a sign-out that another process makes at the same moment`(isLayered: Bool)
        async throws
    {
        let disk = disk
        let session = patientSession(cache: isLayered ? try process() : LocalTokenCache(disk, user: "a"))
        try await session.open { token("one") }
        let gate = Gate()
        gate.shut()
        let refreshing = Task {
            try await session.token(forcingRefresh: true) { _ in
                await gate.pass()
                return token("two")
            }
        }
        await gate.reached()
        let base = try #require(disk.record?.base)
        disk.interference.current = {
            disk.state.withLock { state in
                guard isLayered else {
                    state.item = nil
                    return
                }
                let record = LocalRecord(nil, base: base, write: LocalRecord.Write(logins: ["1"]))
                state.item = record.data(of: "a")
            }
        }
        gate.open()
        #expect(try await refreshing.value.token == "two")
        try await until { session.state == .closed || disk.information?.token == "two" }
        #expect(session.state == .closed)
        #expect(disk.information == nil)
        if isLayered {
            try await process().synchronize()
            #expect(server.token == nil)
        }
    }

    @Test func `what another process has stored shows before a slow server has answered`() async throws {
        let (gate, transport) = (Gate(), server.transport())
        let slow = ScriptedTransport { request, _ in
            await gate.pass()
            return try await transport.send(request)
        }
        let session = patientSession(cache: try process(slow))
        try await session.open { token("one") }
        try await process().store(token("two"))
        gate.shut()
        let reloading = Task { try await session.reload() }
        try await until { session.currentToken == token("two") }
        gate.open()
        #expect(try await reloading.value == .openTokenExtended)
    }

    @Test func `a token is cleared after a change that another process has begun`() async throws {
        let disk = disk
        let local = LocalTokenCache(disk, user: "a")
        let item = LocalRecord(token("two")).data(of: "a")
        let (isClearing, other) = (DispatchSemaphore(value: 0), Outcome<Void>())
        await withCheckedContinuation { begun in
            DispatchQueue.global().async {
                let result = Result {
                    try disk.exclusively { () throws(TokenCacheError) in
                        begun.resume()
                        isClearing.wait()
                        try disk.write(item)
                    }
                }
                other.finish(result)
            }
        }
        // Just before it waits for the lock.
        disk.interference.current = { isClearing.signal() }
        try await local.clear()
        isClearing.signal()
        try await other.value()
        #expect(disk.information == nil)
    }

    @Test(arguments: [true, false])
    func `a damaged item is no sign-out`(isLayered: Bool) async throws {
        let local = LocalTokenCache(disk, user: "a")
        let session = patientSession(cache: isLayered ? try process() : local)
        try await session.open { token("one") }
        disk.state.withLock { $0.item = Data("{".utf8) }
        _ = try await session.token(forcingRefresh: true) { _ in token("two") }
        try await until { disk.information?.token == "two" || session.state == .closed }
        #expect(session.state == .openTokenExtended)
    }

    @Test(arguments: [true, false])
    func `a late answer to one write does not count for a later one`(isOfOtherProcess: Bool) async throws {
        let gate = Gate()
        let transport = server.transport()
        let slow = try process(
            ScriptedTransport { request, _ in
                let answer = try await transport.send(request)
                if request.text.contains("two") { await gate.pass() }
                return answer
            })
        try await slow.store(token("one"))
        gate.shut()
        let storing = Task { try await slow.store(token("two")) }
        await gate.reached()
        if isOfOtherProcess {
            let other = try process()
            try await other.synchronize()
            try await other.store(token("three"))
            gate.open()
            try await storing.value
        } else {
            let later = Task { try await slow.store(token("three")) }
            try await until { disk.information?.token == "three" }
            gate.open()
            _ = try await (storing.value, later.value)
        }
        try await process().store(token("four"))
        #expect([server.token, disk.information?.token] == ["four", "four"])
    }

    @Test(arguments: [nil, "three"])
    func `a write that reaches a server without versions after another process's is undone`(later: String?) async throws
    {
        let server = MemoryCache()
        let remotes = [server, MemoryCache(sharing: server)]
        let (app, widget) = (layeredCache(remotes[0], on: disk), layeredCache(remotes[1], on: disk))
        try await app.store(token("one"))
        remotes[1].storing.shut()
        let refreshing = Task { try await widget.store(token("two")) }
        await remotes[1].storing.reached()
        if let later { try await app.store(token(later)) } else { try await app.clear() }
        #expect(server.information?.token == later)
        remotes[1].storing.open()
        try await refreshing.value
        try await until { disk.record?.write == nil && server.information?.token == later }
        #expect(disk.information?.token == later)
    }

    @Test func `what one process could not save does not replace another's waiting sign-out`() async throws {
        let (app, widget) = (try process(), try process())
        try await app.store(token("one"))
        server.isDown.current = true
        disk.fillDisk()
        await #expect(throws: TestStorage.full) { try await app.store(token("two")) }
        #expect(try await app.fetch()?.token == "two")
        disk.fillDisk(false)
        try await widget.clear()
        #expect(disk.record?.write != nil)
        server.isDown.current = false
        try await app.synchronize()
        #expect(server.token == nil)
        #expect(try await app.fetch() == nil)
    }

    @Test func `what another process has forgotten while a write waits is asked for, not taken for none`() async throws
    {
        let transport = server.transport()
        let cache = try process(
            ScriptedTransport { [disk] request, number in
                if number == 3 { disk.state.withLock { $0.item = nil } }
                return try await transport.send(request)
            })
        try await cache.store(token("one"))
        server.isDown.current = true
        try await cache.clear()
        server.isDown.current = false
        let later = TokenInformation(token: "of a later login", loginID: "2")
        server.put(later.text)
        #expect(try await cache.fetch()?.token == "of a later login")
    }
}
