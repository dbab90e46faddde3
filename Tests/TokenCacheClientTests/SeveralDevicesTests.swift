import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

/// A device with a clock of its own, and the user's app on it.
private final class Device {
    let number: Int
    let disk = TestStorage()
    let server: VersionedServer
    /// How far the clock is ahead.
    let offset: TimeInterval
    let isDown = Locked(false)
    var cache: LayeredTokenCache

    init(_ number: Int, _ server: VersionedServer, offset: TimeInterval = 0) throws {
        (self.number, self.server, self.offset) = (number, server, offset)
        cache = layeredCache(MemoryCache())
        try restart()
    }

    func restart() throws {
        let transport = server.transport()
        let remote = try remote(
            server.hasVersions ? .session { [number] _ in "tcs_\(number)" } : .uniqueID("a"),
            ScriptedTransport { [isDown] request, _ in
                if isDown.current { throw TokenCacheError.unreachable(code: -1004) }
                return try await transport.send(request)
            })
        cache = layeredCache(remote, on: disk)
    }

    /// As a session does.
    func logIn(_ login: String) async throws {
        let new = token("of \(login)", login: login, at: offset)
        do {
            try await cache.store(new)
        } catch TokenCacheError.conflict {
            try await cache.store(new)
        }
    }

    func refresh(_ text: String = "refreshed") async throws {
        guard let old = disk.information else { return }
        try await cache.store(token("\(text) on \(number)", login: old.loginID, at: offset))
    }
}

@Suite struct SeveralDevicesTests {
    enum Step {
        case nothing, signOut, refresh, login2, login3, signOutAndLogin2, refreshByOldApp
    }

    private static let cases: [(waiting: Step, meanwhile: Step, left: String?)] = [
        (.signOut, .nothing, nil), (.signOut, .refresh, nil), (.signOut, .refreshByOldApp, nil),
        (.signOut, .login3, "3"), (.signOut, .signOut, nil),
        (.refresh, .nothing, "1"), (.refresh, .signOut, nil), (.refresh, .refresh, "1"), (.refresh, .login3, "3"),
        (.login2, .nothing, "2"), (.login2, .signOut, "2"), (.login2, .refresh, "2"), (.login2, .login3, "3"),
        (.signOutAndLogin2, .refresh, "2"), (.signOutAndLogin2, .signOut, "2"), (.signOutAndLogin2, .login3, "3"),
    ]

    private func perform(_ step: Step, on device: Device) async throws {
        switch step {
        case .nothing: break
        case .signOut: try await device.cache.clear()
        case .refresh: try await device.refresh()
        case .login2: try await device.logIn("2")
        case .login3: try await device.logIn("3")
        case .signOutAndLogin2:
            try await device.cache.clear()
            try await device.logIn("2")
        case .refreshByOldApp:
            device.server.put(token("by an old app", login: nil).text)
        }
    }

    @Test(arguments: [true, false], [-3_600, 0, 3_600] as [TimeInterval])
    func `what waited counts by versions, and a sign-out beats a refresh whatever clocks say`(
        hasVersions: Bool, offset: TimeInterval
    ) async throws {
        for (waiting, meanwhile, left) in Self.cases {
            for restarts in [false, true] {
                let server = VersionedServer(hasVersions: hasVersions)
                let one = try Device(1, server, offset: offset)
                let two = try Device(2, server)
                try await one.logIn("1")
                _ = try await two.cache.fetch()
                one.isDown.current = true
                try await perform(waiting, on: one)
                try await perform(meanwhile, on: two)
                one.isDown.current = false
                // What waits is sent before an answer.
                if restarts { try one.restart() } else { try await one.cache.synchronize() }
                let name = "\(waiting) while \(meanwhile), \(restarts)"
                for device in [one, two] { #expect(try await device.cache.fetch()?.loginID == left, "\(name)") }
                #expect(one.disk.record?.write == nil, "\(name)")
                if waiting == .refresh, meanwhile == .refresh {
                    #expect(one.disk.information?.token == "refreshed on 2")
                }
            }
        }
    }

    @Test(arguments: [true, false], [true, false])
    func `a sign-out of a device that never saw the server ends no later login, whose token stays away`(
        restarts: Bool, hasLogin: Bool
    ) async throws {
        let server = VersionedServer()
        let (one, two) = try (Device(1, server), Device(2, server))
        one.isDown.current = true
        if hasLogin { try await one.logIn("1") }
        try await one.cache.clear()
        try await two.logIn("2")
        one.isDown.current = false
        if restarts { try one.restart() }
        try await one.cache.synchronize()
        #expect(one.disk.record == nil)
        for device in [two, one] { #expect(try await device.cache.fetch()?.loginID == "2") }
    }

    @Test func `a server that has lost its tokens signs nobody out, whom only a sign-out does`() async throws {
        let server = VersionedServer(hasVersions: false)
        let session = patientSession(cache: try remote(.uniqueID("a"), server.transport()))
        try await session.open { token("one") }
        server.row.withLock { $0.text = nil }
        #expect(try await session.reload() == .open)
        try await remote(.uniqueID("a"), server.transport()).clear()
        #expect(try await session.reload() == .closed)
    }

    enum Way: CaseIterable { case open, loadAndOpen, reload }

    @Test(arguments: [nil, "of another device"], Way.allCases)
    func `a session shows the device's token at once, and learns what the server answers`(other: String?, way: Way)
        async throws
    {
        let (server, disk) = (MemoryCache(), TestStorage())
        let cache = layeredCache(server, on: disk, patience: way == .reload ? .milliseconds(1) : .seconds(20))
        let session = patientSession(cache: cache)
        try await session.open { TokenInformation(token: "one", loginID: "1") }
        try await cache.synchronize()
        if way != .reload { await session.close() }
        let new = other.map { TokenInformation(token: $0, loginID: "1") }
        server.contents.withLock { $0.information = new }
        server.gate.shut()
        var events = session.events.makeAsyncIterator()
        switch way {
        case .open: #expect(try await session.open() == .open)
        case .loadAndOpen: #expect(try await session.load() == .createdTokenLoaded)
        case .reload: #expect(try await session.reload() == .open)
        }
        #expect(session.currentToken?.token == "one")
        server.gate.open()
        if way == .loadAndOpen {
            try await until { disk.information == new }
            try await session.open()
        }
        switch await events.next() {
        case .renewed(let token): #expect(token == new)
        case .ended(let ending): #expect(ending == .signedOutElsewhere && new == nil)
        default: throw Trouble()
        }
        #expect(session.currentToken == new)
    }

    @Test func `a token that waited and was overtaken is not kept by its session`() async throws {
        let server = VersionedServer()
        let devices = try (0..<2).map { try Device($0, server) }
        let session = patientSession(cache: devices[0].cache)
        try await session.open { TokenInformation(token: "one") }
        _ = try await devices[1].cache.fetch()
        devices[0].isDown.current = true
        try await session.adopt(TokenInformation(token: "late"))
        try await devices[1].cache.clear()
        devices[0].isDown.current = false
        try await devices[0].cache.synchronize()
        try await until { session.state == .closed }
    }

    @Test func `a device whose account has ended is told so, also when it signs out`() async throws {
        let (server, hasEnded) = (VersionedServer(), Locked(false))
        let transport = server.transport()
        let cache = layeredCache(
            try remote(
                .session { _ in
                    if hasEnded.current { throw Trouble() }
                    return "tcs_a"
                }, transport))
        let session = patientSession(cache: cache)
        try await session.open { TokenInformation(token: "one") }
        var events = session.events.makeAsyncIterator()
        hasEnded.current = true
        for _ in 0..<2 { #expect(try await session.reload() == .open) }
        #expect(try await session.signOut() == false)
        // Told once, until a request succeeds.
        guard case .cachingFailed(let error)? = await events.next(), error is Trouble else { throw Trouble() }
        guard case .ended(.signedOut)? = await events.next() else { throw Trouble() }
        hasEnded.current = false
        try await cache.synchronize()
        #expect(server.token == nil)
        #expect(try await session.signOut())
    }

    @Test func `a session does not end for a login that was replaced before it was stored`() async throws {
        let local = LocalTokenCache(.memory, user: "a")
        let session = patientSession(cache: local)
        let gate = Gate()
        gate.shut()
        // An earlier write that takes long, such as a sign-out.
        let earlier = Task { try await session.writes.run { await gate.pass() } }
        await gate.reached()
        let opening = Task { try await session.open { TokenInformation(token: "one") } }
        try await until { session.state == .open }
        let adopting = Task { try await session.adopt(TokenInformation(token: "extended")) }
        try await until { session.state == .openTokenExtended }
        gate.open()
        try await earlier.value
        _ = try await (opening.value, adopting.value)
        #expect(session.state == .openTokenExtended)
        #expect(try await local.fetch()?.token == "extended")
    }

    @Test(arguments: [true, false])
    func `what one device has ended stays ended when another one signs out`(hasVersions: Bool) async throws {
        let server = VersionedServer(hasVersions: hasVersions)
        let devices = try (0..<3).map { try Device($0, server) }
        // The answer to this login is lost, so that its device does not know which version it has written.
        server.losesAnswers.current = true
        try await devices[2].logIn("3")
        devices[2].isDown.current = true
        server.losesAnswers.current = false
        #expect(try await devices[0].cache.fetch()?.loginID == "3")
        try await devices[0].cache.clear()
        // Later, on a device without a network.
        #expect(try await devices[1].cache.fetch() == nil)
        devices[1].isDown.current = true
        try await devices[1].logIn("2")
        try await devices[1].cache.clear()
        devices[1].isDown.current = false
        try await devices[1].cache.synchronize()
        devices[2].isDown.current = false
        try await devices[2].cache.synchronize()
        for device in devices { #expect(try await device.cache.fetch() == nil) }
    }

    /// Random steps of one device while answers are lost and processes end.
    @Test(arguments: 0..<60 as Range<UInt64>, [true, false])
    func `a device that is alone keeps what it has written last`(seed: UInt64, hasVersions: Bool) async throws {
        var random = SeededGenerator(seed: seed)
        let server = VersionedServer(hasVersions: hasVersions)
        let device = try Device(1, server)
        for step in 0..<80 {
            device.isDown.current = Int.random(in: 0..<3, using: &random) == 0
            server.losesAnswers.current = Int.random(in: 0..<3, using: &random) == 0
            var last = device.disk.information?.token
            switch Int.random(in: 0..<8, using: &random) {
            case 0: try device.restart()
            case 1: _ = try? await device.cache.fetch()
            case 2: try? await device.cache.synchronize()
            case 3:
                try await device.logIn("\(step)")
                last = "of \(step)"
            case 4:
                try await device.cache.clear()
                last = nil
            default:
                try await device.refresh("\(step)")
                if last != nil { last = "\(step) on 1" }
            }
            #expect(device.disk.information?.token == last)
        }
        server.losesAnswers.current = false
        device.isDown.current = false
        let last = device.disk.information?.token
        try await device.cache.synchronize()
        #expect([server.token, device.disk.information?.token] == [last, last])
    }

    /// A ledger of sign-outs while answers are lost, processes end, and clocks are wrong.
    @Test(arguments: 0..<60 as Range<UInt64>, [true, false])
    func `no login comes back after its sign-out was acknowledged`(seed: UInt64, hasVersions: Bool) async throws {
        var random = SeededGenerator(seed: seed)
        let server = VersionedServer(hasVersions: hasVersions)
        let devices = try (0..<3).map {
            try Device($0, server, offset: .random(in: -3_600...3_600, using: &random))
        }
        var ended: Set<String> = []
        for step in 0..<80 {
            let device = devices[Int.random(in: 0..<3, using: &random)]
            device.isDown.current = Int.random(in: 0..<3, using: &random) == 0
            server.losesAnswers.current = Int.random(in: 0..<5, using: &random) == 0
            switch Int.random(in: 0..<9, using: &random) {
            // As if it had been killed.
            case 0: try device.restart()
            case 1, 2: _ = try? await device.cache.fetch()
            case 3: try? await device.cache.synchronize()
            case 4: try await device.logIn("\(step)")
            case 5, 6: try? await device.refresh("\(step)")
            default:
                let login = device.disk.information?.loginID
                try await device.cache.clear()
                if let login { ended.insert(login) }
            }
        }
        server.losesAnswers.current = false
        for device in devices {
            device.isDown.current = false
            try device.restart()
        }
        for device in devices + devices { try await device.cache.synchronize() }
        let found = try await devices[0].cache.fetch()
        for device in devices { #expect(try await device.cache.fetch() == found) }
        #expect(devices.allSatisfy { $0.disk.information == found })
        if let login = found?.loginID { #expect(!ended.contains(login)) }
    }

    // MARK: - Users who do not come back

    @Test(arguments: [true, false], [true, false])
    func `a sign-out that nobody is left to send is sent by the next cache of the device`(
        hasVersions: Bool, isOvertaken: Bool
    ) async throws {
        let directory = TemporaryDirectory()
        let folder = URL(filePath: directory.path).appending(path: "tokens")
        let server = VersionedServer(hasVersions: hasVersions)
        let transport = server.transport()
        let credentials = Locked<Set<String>>([])
        @Sendable func cache(_ id: String) throws -> LayeredTokenCache {
            let remote = try remote(
                hasVersions ? .session { _ in "of_\(id)" } : .uniqueID(id),
                ScriptedTransport { request, _ in
                    // The row is that of anna.
                    let shown = request.headers["Authorization"] ?? (request.url.query() ?? "") + request.text
                    if !shown.contains("of_a"), !shown.contains("unique_id=a") {
                        return request.answer(Answers.nothing)
                    }
                    credentials.withLock { _ = $0.insert(shown) }
                    return try await transport.send(request)
                })
            return LayeredTokenCache(
                local: LocalTokenCache(.directory(folder), user: id), remote: remote, patience: .seconds(20),
                clock: WaitingClock())
        }
        let users = Users(directory: folder) { id in patientSession(cache: try cache(id)) }
        try await users.switch(to: "a").open { TokenInformation(token: "of anna") }
        server.isDown.current = true
        try await users.forget("a")
        #expect(try await users.all().isEmpty)
        server.isDown.current = false
        #expect(server.row.withLock { $0.text }?.contains("of anna") == true)
        // By a login on her phone.
        let later = TokenInformation(token: "of her phone", loginID: "2")
        if isOvertaken { server.put(later.text) }
        // The next start, with another user, whose session it is not.
        let next = Users(directory: folder) { id in patientSession(cache: try cache(id)) }
        try await next.switch(to: "b").open { TokenInformation(token: "of ben") }
        try await until { server.row.withLock { $0.text }?.contains("of anna") == false }
        // And nothing of her is left.
        let slot = folder.appending(path: SHA256.hexadecimal("a") + ".json")
        try await until { (try? String(contentsOf: slot, encoding: .utf8))?.contains("\"write\"") != true }
        try await until { (try? String(contentsOf: slot, encoding: .utf8))?.contains("TokenKey") != false }
        #expect(!FileManager.default.fileExists(atPath: slot.path))
        #expect(server.token == (isOvertaken ? "of her phone" : nil))
    }

    @Test(arguments: [true, false])
    func `whoever comes back while another user's cache sends their sign-out keeps the new token`(isQueued: Bool)
        async throws
    {
        let server = VersionedServer()
        server.put(TokenInformation(token: "old", loginID: "1").text)
        let disks = ["a": TestStorage(), "c": TestStorage()]
        for (id, disk) in disks {
            try await LocalTokenCache(disk, user: id).update {
                let credential = Credential(isSession: true, text: "of_\(id)")
                $0 = LocalRecord(nil, write: LocalRecord.Write(logins: ["1"], credential: credential))
            }
        }
        let (anna, carl) = (try #require(disks["a"]), try #require(disks["c"]))
        let transport = server.transport()
        let remote = try remote(
            .session { _ in "of_b" },
            ScriptedTransport { request, _ in
                if request.headers["Authorization"]?.contains("of_a") == true, anna.information == nil {
                    let write = isQueued ? LocalRecord.Write(logins: ["1"]) : nil
                    try await LocalTokenCache(anna, user: "a").update {
                        $0 = LocalRecord(TokenInformation(token: "again", loginID: "2"), write: write)
                    }
                }
                return try await transport.send(request)
            })
        let local = LocalTokenCache(TestStorage(others: [anna, carl]), user: "b")
        let cache = LayeredTokenCache(local: local, remote: remote, patience: .seconds(20), clock: WaitingClock())
        _ = try await cache.fetch()
        // One after the other: nothing is left of the second, so the first is done.
        try await until { carl.state.withLock { $0.item } == nil }
        #expect(anna.information?.token == "again")
    }
}
