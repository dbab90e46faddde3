import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

let day: TimeInterval = 86_400

func token(
    _ text: String = "cached", expires: TimeInterval = 60 * day, refreshed: TimeInterval = 0, _ clock: TestClock,
    permissions: Set<String> = ["email"], appID: String? = nil
) -> TokenInformation {
    TokenInformation(
        token: text, expirationDate: clock.now + expires, refreshDate: clock.now + refreshed, permissions: permissions,
        appID: appID, loginID: "1")
}

func token(_ clock: TestClock, permissions: Set<String> = ["email"], appID: String? = nil) -> TokenInformation {
    token("cached", clock, permissions: permissions, appID: appID)
}

@Suite struct SessionTests {
    let clock = TestClock()

    /// A token that names everything.
    var named: TokenInformation {
        TokenInformation(
            token: "one", expirationDate: clock.now, refreshDate: clock.now, permissions: ["email"],
            declinedPermissions: ["likes"], permissionsRefreshDate: clock.now, loginType: .webView, appID: "12",
            userID: "7", loginID: "1", refreshToken: "R", idToken: "I", others: ["a": .null, "b": .bool(true)])
    }

    func session(_ cache: any TokenCaching, permissions: Set<String> = [], appID: String? = nil) -> TokenSession {
        patientSession(cache: cache, permissions: permissions, appID: appID, now: { [clock] in clock.now })
    }

    // MARK: - Opening

    @Test func `a cached token opens the session, and is told to all listeners`() async throws {
        var session: TokenSession? = session(MemoryCache(token(clock)))
        let early = try #require(session).states
        #expect(try await session?.open() == .open)
        #expect(session?.currentToken == token(clock))
        let late = try #require(session).states
        await session?.close()
        #expect(session?.currentToken == nil)
        let last = try #require(session).states
        // Listeners end with the object.
        session = nil
        var states: [[TokenSession.State]] = []
        for stream in [early, late, last] { states.append(await stream.reduce(into: []) { $0.append($1) }) }
        #expect(states == [[.created, .createdTokenLoaded, .open, .closed], [.open, .closed], [.closed]])
    }

    @Test func `each login is told from others`() async throws {
        let session = session(MemoryCache())
        var logins: Set<String?> = [nil]
        for _ in 0..<2 {
            try await session.open { TokenInformation(token: "login") }
            logins.insert(session.currentToken?.loginID)
            try await session.signOut()
        }
        #expect(logins.count == 3)
    }

    @Test func `those who open at once are asked once, and one who is cancelled does not take it from the others`()
        async throws
    {
        let (session, gate, calls) = (session(MemoryCache()), Gate(), Locked(0))
        gate.shut()
        let login: TokenSession.Login = { [clock] in
            calls.withLock { $0 += 1 }
            await gate.pass()
            return token("login", clock)
        }
        let tasks = (0..<10).map { _ in Task { try await session.open(login: login) } }
        await gate.reached()
        tasks[0].cancel()
        await #expect(throws: CancellationError.self) { try await tasks[0].value }
        gate.open()
        for task in tasks.dropFirst() { #expect(try await task.value == .open) }
        #expect(calls.current == 1)
    }

    enum End: CaseIterable { case cancelled, abandoned, closed }

    @Test(arguments: End.allCases)
    func `a login that does not call back keeps nobody from the next one`(end: End) async throws {
        let (cache, gate, wasCancelled) = (MemoryCache(), Gate(), Locked<Bool?>(nil))
        let session = session(cache)
        gate.shut()
        let late = token("late", clock)
        let tasks = (0..<2).map { _ in
            Task {
                try await session.open {
                    await gate.pass()
                    wasCancelled.current = Task.isCancelled
                    return late
                }
            }
        }
        await gate.reached()
        try await until { await session.opening?.outcome.waiters == 2 }
        switch end {
        case .cancelled: for task in tasks { task.cancel() }
        case .abandoned: await session.abandonLogin()
        case .closed: await session.close()
        }
        for task in tasks {
            await #expect {
                try await task.value
            } throws: { error in
                end == .closed ? error as? TokenSessionError == .closed : error is CancellationError
            }
        }
        #expect(session.state == (end == .closed ? .closedLoginFailed : .created))
        let login = token("login", clock)
        #expect(try await session.open { login } == .open)
        gate.open()
        try await until { wasCancelled.current != nil }
        #expect(wasCancelled.current == true)
        for _ in 0..<100 { await Task.yield() }
        await session.abandonLogin()
        await session.close()
        #expect(cache.information == login)
    }

    @Test(arguments: [61, -61] as [TimeInterval])
    func `unknown is not signed out`(later: TimeInterval) async throws {
        let cache = MemoryCache()
        cache.fail()
        let session = session(cache)
        let login = token("login", clock)
        await #expect(throws: Trouble.self) { try await session.open() }
        await #expect(throws: Trouble.self) { try await session.open(loginIfUnknown: false, login: { login }) }
        #expect(session.state == .created)
        // By the login button.
        #expect(try await session.open { login } == .open)
        // It could not be cached, and is tried again.
        #expect(await session.cachingError is Trouble)
        cache.fail(false)
        clock.advance(by: later)
        _ = try await session.token()
        try await until { cache.information == login }
        try await until { await session.cachingError == nil }
    }

    @Test func `a CancellationError of the app's own closure is an error like others`() async throws {
        let transport = ScriptedTransport { _, _ in throw Trouble() }
        let session = session(try remote(.session { _ in throw CancellationError() }, transport))
        let login = token("login", clock)
        await #expect(throws: CancellationError.self) { try await session.open() }
        #expect(try await session.open { login } == .open)
    }

    @Test func `only a token that fits is accepted, and the others stay where they are`() async throws {
        let wanted: [(TokenInformation, Bool)] = [
            (token(clock, permissions: ["email", "a"]), true), (token(clock, permissions: ["a"]), false),
            (token(clock, appID: "12"), true), (token(clock, appID: "13"), false),
            // The leeway is five minutes.
            (token(expires: -299, clock), true), (token(expires: -300, clock), false),
            (TokenInformation(token: "x", expirationDate: nil, permissions: ["email"]), true),
        ]
        for (cached, isAccepted) in wanted {
            let cache = MemoryCache(cached)
            let session = session(cache, permissions: ["email"], appID: "12")
            #expect(try await session.load() == (isAccepted ? .createdTokenLoaded : .created))
            #expect(try await session.open() == (isAccepted ? .open : .created))
            await session.close()
            #expect(cache.information == cached)
        }
    }

    @Test func `a session that is closed while it opens stays closed`() async throws {
        let cache = MemoryCache(token(clock))
        cache.gate.shut()
        let session = session(cache)
        let opening = Task { try await session.open() }
        await cache.gate.reached()
        await session.close()
        await #expect(throws: TokenSessionError.closed) { try await opening.value }
        cache.gate.open()
        #expect(session.state == .closedLoginFailed)
    }

    // MARK: - Other libraries and views

    @Test func `a token that another library has kept is adopted`() async throws {
        let cache = MemoryCache()
        let session = session(cache)
        await #expect(throws: TokenSessionError.blankToken) { try await session.adopt(TokenInformation(token: "")) }
        try await session.adopt(TokenInformation(token: "kept", userID: "7"))
        #expect(session.state == .open)
        let login = try #require(cache.information?.loginID)
        // A refresh that is under way is the former user's.
        let gate = Gate()
        gate.shut()
        let refreshing = Task {
            try await session.token(forcingRefresh: true) { old in
                await gate.pass()
                return old
            }
        }
        await gate.reached()
        try await session.adopt(TokenInformation(token: "of another user", userID: "8"))
        gate.open()
        await #expect(throws: TokenSessionError.closed) { try await refreshing.value }
        #expect(session.state == .open)
        #expect(cache.information?.loginID != login)
        let refreshed = try await session.token(forcingRefresh: true) { TokenInformation(token: $0.token + ", new") }
        #expect(refreshed.token == "of another user, new")
        try await session.signOut()
        try await session.adopt(TokenInformation(token: "again"))
        #expect(session.state == .open)
    }

    @Test(.timeLimit(.minutes(5)), arguments: [false, true])
    func `what is adopted during a refresh stands, unless the user signs out meanwhile`(signsOut: Bool) async throws {
        let (cache, gate) = (MemoryCache(), Gate())
        let session = patientSession(cache: cache)
        try await session.open { TokenInformation(token: "one", permissions: ["a"], userID: "7") }
        gate.shut()
        let refreshing = Task {
            try await session.token(forcingRefresh: true) { _ in
                await gate.pass()
                return TokenInformation(token: "refreshed")
            }
        }
        await gate.reached()
        let extended = TokenInformation(token: "extended", permissions: ["a", "b"], userID: "7")
        let adopting = Task { try await session.adopt(extended) }
        try await until { await session.refreshing?.waiters == 2 }
        if signsOut {
            let signingOut = Task { try await session.signOut() }
            try await until { session.state.isClosed }
            gate.open()
            _ = try await signingOut.value
            await #expect(throws: TokenSessionError.closed) { try await adopting.value }
            #expect(cache.information == nil)
        } else {
            gate.open()
            #expect(try await refreshing.value.token == "refreshed")
            try await adopting.value
            #expect(try await session.token().permissions == ["a", "b"])
            #expect(cache.information?.token == "extended")
        }
    }

    @Test(.timeLimit(.minutes(5))) func `a refresh may adopt a token itself`() async throws {
        let cache = MemoryCache()
        let session = patientSession(cache: cache)
        try await session.open { TokenInformation(token: "one") }
        let new = try await session.token(forcingRefresh: true) { _ in
            try await session.adopt(TokenInformation(token: "adopted"))
            return TokenInformation(token: "refreshed")
        }
        #expect(new.token == "refreshed")
        try await until { cache.information?.token == "refreshed" }
    }

    @Test func `an extension that keeps the token's text is adopted, and completed by what it does not name`()
        async throws
    {
        let cache = MemoryCache(named)
        let session = session(cache)
        try await session.open()
        var expected = named
        for change: (inout TokenInformation) -> Void in [
            { $0.expirationDate? += day }, { $0.refreshDate? += day },
            { ($0.permissions, $0.declinedPermissions) = (["email", "likes"], []) },
            { $0.permissionsRefreshDate? += day },
        ] {
            change(&expected)
            var extended = TokenInformation(
                token: "one", expirationDate: expected.expirationDate, refreshDate: expected.refreshDate,
                permissions: expected.permissions, declinedPermissions: expected.declinedPermissions)
            if expected.permissionsRefreshDate != clock.now { extended.permissionsRefreshDate = clock.now + day }
            try await session.adopt(extended)
            #expect(cache.information == expected)
            // There is nothing new in it now.
            let done = cache.done
            try await session.adopt(extended)
            #expect(cache.done == done)
        }
    }

    #if canImport(Observation)
    @MainActor @Test func `a view sees the state and the token`() async throws {
        let session = session(MemoryCache(token(expires: 10, clock)))
        let model = ObservableTokenSession(session)
        #expect(model.state == .created)
        try await session.open()
        try await until { model.state == .open && model.currentToken == token(expires: 10, clock) }
        let new = token("new", clock)
        _ = try await session.token(refresh: { _ in new })
        try await until { model.currentToken == new }
        try await model.session.signOut()
        try await until { model.state == .closed && model.currentToken == nil }
    }
    #endif

    // MARK: - Other devices

    @Test func `the token of another device that was faster counts, and so does its sign-out`() async throws {
        let (old, new, other) = (token(expires: 10, clock), token("new", clock), token("other", clock))
        /// A session on a device that was slower than another one.
        func contested(_ current: TokenInformation?) -> TokenSession {
            let cache = MemoryCache(old)
            cache.contents.withLock { $0.storeError = TokenCacheError.conflict(current: current) }
            return session(cache)
        }
        let first = contested(other)
        try await first.open()
        #expect(try await first.token(refresh: { _ in new }) == new)
        try await until { first.currentToken == other }
        #expect(try await first.token() == other)
        let second = contested(nil)
        try await second.open()
        #expect(try await second.token(refresh: { _ in new }) == new)
        try await until { second.state == .closed }
    }

    @Test(arguments: [true, false])
    func `a token is not stored a second time after a sign-out`(isAdopted: Bool) async throws {
        let cache = MemoryCache()
        cache.contents.withLock { $0.storeError = TokenCacheError.conflict(current: nil) }
        cache.storing.shut()
        let session = session(cache)
        let new = token("new", clock)
        let storing = Task {
            if isAdopted { try await session.adopt(new) } else { _ = try await session.open { new } }
        }
        await cache.storing.reached()
        let closing = Task { try await session.signOut() }
        try await until { session.state == .closed }
        cache.storing.open()
        _ = try await closing.value
        _ = await storing.result
        await session.close()
        #expect(cache.done.filter { $0 != "fetch" } == ["store", "clear"])
    }

    enum Moment: CaseIterable { case login, storing, adoption }

    @Test(arguments: Moment.allCases)
    func `a token counts as stored although the task was cancelled`(moment: Moment) async throws {
        let (cache, gate) = (MemoryCache(), Gate())
        let session = session(cache)
        let new = token("new", clock)
        gate.shut()
        cache.storing.shut()
        let task = Task {
            if moment == .adoption { return try await session.adopt(new) }
            try await session.open {
                await gate.pass()
                return new
            }
        }
        if moment != .adoption { await gate.reached() }
        // This login cannot be cancelled.
        if moment == .login { task.cancel() }
        gate.open()
        await cache.storing.reached()
        task.cancel()
        // The session is open, and does not wait.
        #expect(try await session.open() == .open)
        cache.storing.open()
        try await until { if await session.isLoginCached { true } else { await session.cachingError != nil } }
        #expect(await session.cachingError == nil)
        #expect(cache.information == new)
    }

    // MARK: - Closing

    @Test func `a session that is just being opened again is adopted or signed out as any other`() async throws {
        for round in 0..<200 {
            let (cache, other) = (MemoryCache(token(clock)), token("other", clock))
            let session = session(cache)
            await session.close()
            try await session.open()
            await session.close()
            let opening = Task { try await session.open() }
            for _ in 0..<round % 10 { await Task.yield() }
            if round < 100 { try await session.adopt(other) } else { try await session.signOut() }
            _ = await opening.result
            if round < 100 { #expect(session.state.isOpen) }
            #expect(cache.information == (round < 100 ? other : nil))
        }
    }
}
