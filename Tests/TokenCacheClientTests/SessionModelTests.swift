import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

/// The transitions of the SDK, written down once more, with those back to the beginning.
private let table: [TokenSession.State: Set<TokenSession.State>] = [
    .created: [.createdTokenLoaded, .createdOpening, .closedLoginFailed],
    .createdTokenLoaded: [.open, .closedLoginFailed], .createdOpening: [.open, .closedLoginFailed, .created],
    .open: [.openTokenExtended, .closed], .openTokenExtended: [.openTokenExtended, .closed],
    .closedLoginFailed: [.created], .closed: [.created],
]

/// Random operations and failures on sessions of one user, and what must come of them.
private struct Model {
    var random: SeededGenerator
    let clock = TestClock()
    let cache = MemoryCache()
    var session: TokenSession
    var state = TokenSession.State.created
    var held: TokenInformation?
    var isUncached = false
    var refused: String?
    var isRefused: Bool { held != nil && held?.token == refused }
    var lastRefresh = Date.distantPast
    var lastCaching = Date.distantPast
    var lastReload = Date.distantPast
    var givenUp: String?
    var isFailing = false
    var number = 0
    var seen: Task<[TokenSession.State], Never>
    var steps = 0

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        session = patientSession(cache: cache, permissions: ["email"], now: { [clock] in clock.now })
        seen = Self.listen(session)
    }

    static func listen(_ session: TokenSession) -> Task<[TokenSession.State], Never> {
        let states = session.states
        return Task { await states.reduce(into: []) { $0.append($1) } }
    }

    mutating func chance(_ one: Int) -> Bool {
        Int.random(in: 0..<one, using: &random) == 0
    }

    mutating func newToken() -> TokenInformation {
        number += 1
        let expires: [TimeInterval] = [-600, 30, 7_200, 5_000_000]
        return TokenInformation(
            token: "\(number)", expirationDate: clock.now + (expires.randomElement(using: &random) ?? 0),
            refreshDate: clock.now - (chance(3) ? 100_000 : 0), permissions: chance(8) ? [] : ["email"], loginID: "1")
    }

    func isUsable(_ token: TokenInformation?) -> Bool {
        guard let token, let expiration = token.expirationDate else { return false }
        return expiration > clock.now - 300 && token.token != refused && token.token != givenUp
    }

    func isAccepted(_ token: TokenInformation?) -> Bool {
        isUsable(token) && token?.permissions.contains("email") == true
    }

    // MARK: - Steps

    mutating func step() async throws {
        steps += 1
        switch Int.random(in: 0..<14, using: &random) {
        case 0: clock.advance(by: [1, 120, 4_000, 90_000].randomElement(using: &random) ?? 0)
        case 1:
            isFailing = chance(2)
            cache.fail(isFailing)
        case 2: try await otherDevice()
        case 3: try await load()
        case 4, 5, 6: try await open()
        case 7, 8, 9, 10: try await token()
        case 11: try await reload()
        default: try await close()
        }
        #expect(session.state == state)
        #expect(session.currentToken == held)
        if state.isClosed, chance(4) { try await begin() }
    }

    private mutating func otherDevice() async throws {
        // One that works, whatever this device's network does.
        let new = chance(3) ? nil : newToken()
        cache.contents.withLock { $0.information = new }
    }

    private mutating func load() async throws {
        let before = state
        let isLooking = before != .createdTokenLoaded && !before.isOpen
        if isLooking { state = .created }
        do {
            try await session.load(patience: .seconds(3_600))
            #expect(!isLooking || !isFailing)
            if isLooking, isAccepted(cache.information) {
                state = .createdTokenLoaded
                held = cache.information
            }
        } catch {
            #expect(isLooking && isFailing && error is Trouble)
        }
    }

    private mutating func open() async throws {
        let kind = Int.random(in: 0..<5, using: &random)
        // A login begins anew.
        if state.isOpen, isRefused || held != nil && held?.token == givenUp, kind > 0 { ended(.closed) }
        let (before, cached) = (state, cache.information)
        var new = newToken()
        new.token = kind == 2 ? " " : new.token
        let login: TokenSession.Login? =
            switch kind {
            case 0: nil
            case 3: { throw Trouble() }
            case 4: { throw CancellationError() }
            default: { [new] in new }
            }
        let error: (any Error)?
        do {
            try await session.open(patience: .seconds(3_600), login: login)
            error = nil
        } catch let thrown { error = thrown }
        switch before {
        case .open, .openTokenExtended: #expect(error == nil)
        case .createdTokenLoaded: state = .open
        case _ where isFailing && kind == 0:
            #expect(error is Trouble)
            state = .created
        case _ where !isFailing && isAccepted(cached): (state, held) = (.open, cached)
        case _ where kind == 0:
            #expect(error == nil)
            state = .created
        case _ where kind == 1:
            (state, held, lastRefresh, lastCaching, isUncached) = (.open, new, clock.now, clock.now, isFailing)
            #expect(cache.information == (isFailing ? cached : new))
        default:
            #expect(error != nil)
            state = kind == 4 ? .created : .closedLoginFailed
        }
    }

    private mutating func token() async throws {
        let (kind, before, time) = (Int.random(in: 0..<3, using: &random), state, clock.now)
        var new = newToken()
        let isForced = chance(10)
        let refresh: TokenSession.Refresh? =
            switch kind {
            case 0: nil
            case 1: { _ in throw Trouble() }
            default: { [new] _ in new }
            }
        if chance(10), let held {
            await session.invalidate(held)
            refused = held.token
        }
        let isRefused = isRefused
        let (elsewhere, wasUncached) = (cache.information, isUncached)
        let result: Result<TokenInformation, any Error>
        do {
            result = .success(try await session.token(forcingRefresh: isForced, refresh: refresh))
        } catch {
            result = .failure(error)
        }
        guard before.isOpen, let old = held, let expiration = old.expirationDate else {
            #expect(throws: TokenSessionError.notOpen(before)) { try result.get() }
            return
        }
        var exchanged = old
        let session = session
        try await until { await session.refreshing == nil }
        // The attempt to cache again is settled before anything else is looked at.
        await session.writes.finish()
        if isUncached, time.timeIntervalSince(lastCaching) > 60 {
            lastCaching = time
            if !isFailing { isUncached = false }
        }
        let isUrgent = expiration <= time + 60 || isForced || isRefused
        let isDue =
            time.timeIntervalSince(old.refreshDate ?? time) > 86_400 && time.timeIntervalSince(lastRefresh) > 3_600
        // What another device has left counts, unless the token could not be cached.
        if kind > 0, isUrgent || isDue, !isFailing, !wasUncached, elsewhere?.token != old.token {
            guard let elsewhere else {
                if isUrgent {
                    #expect(throws: TokenSessionError.closed) { try result.get() }
                } else {
                    #expect(try result.get() == old)
                }
                return ended(.closed)
            }
            if isAccepted(elsewhere), !isForced, elsewhere.expirationDate ?? time > time + 60 {
                #expect(try result.get() == (isUrgent ? elsewhere : old))
                (state, held, lastRefresh) = (.openTokenExtended, elsewhere, time)
                return
            }
            exchanged = elsewhere
        }
        if new.permissions.isEmpty { new.permissions = exchanged.permissions }
        switch kind {
        case 0: try reloadedIfExpired(old, elsewhere, wasUncached, result)
        case _ where !isUrgent && !isDue: #expect(try result.get() == old)
        case 1:
            lastRefresh = time
            if isUrgent { #expect(throws: Trouble.self) { try result.get() } } else { #expect(try result.get() == old) }
        default:
            #expect(try result.get() == (isUrgent ? new : old))
            (state, held, lastRefresh, lastCaching, isUncached) = (.openTokenExtended, new, time, time, isFailing)
            if !isFailing { #expect(cache.information == new) }
        }
        let isUncached = isUncached
        try await until { await (session.cachingError != nil) == isUncached }
    }

    /// Without a refresh, the cache is asked for another token.
    private mutating func reloadedIfExpired(
        _ old: TokenInformation, _ elsewhere: TokenInformation?, _ wasUncached: Bool,
        _ result: Result<TokenInformation, any Error>
    ) throws {
        let hasExpired = isRefused || old.isExpired(at: clock.now)
        let isReloaded = wasUncached || isUsable(old) && clock.now.timeIntervalSince(lastReload) < 60
        if hasExpired, !isReloaded {
            lastReload = clock.now
            if isFailing, !isUsable(old) {
                #expect(throws: Trouble.self) { try result.get() }
                return
            }
            if !isFailing, elsewhere == nil {
                let error = old.isExpired(at: clock.now) ? TokenSessionError.expired : .closed
                #expect(throws: error) { try result.get() }
                return ended(.closed)
            }
            if !isFailing, isAccepted(elsewhere), elsewhere != old {
                (state, held) = (.openTokenExtended, elsewhere)
                return #expect(try result.get() == elsewhere)
            }
        }
        if isUsable(old) {
            #expect(try result.get() == old)
        } else {
            #expect(throws: TokenSessionError.expired) { try result.get() }
            givenUp = old.token
        }
    }

    private mutating func reload() async throws {
        let before = state
        do {
            try await session.reload()
            #expect(before.isOpen && !isFailing)
            guard !isUncached else { return }
            if cache.information == nil {
                ended(.closed)
            } else if isAccepted(cache.information), cache.information != held {
                (state, held) = (.openTokenExtended, cache.information)
            }
        } catch {
            #expect(before.isOpen ? isFailing : error as? TokenSessionError == .notOpen(before))
        }
    }

    private mutating func ended(_ next: TokenSession.State) {
        (state, held, isUncached) = (next, nil, false)
        (lastRefresh, lastCaching, lastReload) = (.distantPast, .distantPast, .distantPast)
    }

    private mutating func close() async throws {
        let (isClearing, before) = (chance(2), cache.information)
        do {
            if isClearing { try await session.signOut() } else { await session.close() }
            #expect(cache.information == (isClearing ? nil : before))
        } catch {
            #expect(isClearing && isFailing)
            #expect(cache.information == before)
        }
        if !state.isClosed { ended(state.isOpen ? .closed : .closedLoginFailed) }
    }

    /// The next session, after a look at all states of the last one.
    mutating func begin() async throws {
        if !state.isClosed { try await close() }
        session = patientSession(cache: cache, permissions: ["email"], now: { [clock] in clock.now })
        // It ends with the object that is gone.
        let states = await seen.value
        #expect(states.first == .created && states.last == state)
        for (before, after) in zip(states, states.dropFirst()) { #expect(table[before]?.contains(after) == true) }
        seen = Self.listen(session)
        ended(.created)
        (refused, givenUp) = (nil, nil)
    }
}

@Suite struct SessionModelTests {
    @Test func `the table of the library is that of the SDK`() {
        for state in TokenSession.State.allCases { #expect(table[state] == state.successors) }
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `five thousand random operations go as the model says`(seed: UInt64) async throws {
        var model = Model(seed: seed)
        for _ in 0..<5_000 { try await model.step() }
        try await model.begin()
    }

    @Test(arguments: 0..<50 as Range<UInt64>)
    func `operations at the same time never leave the table`(seed: UInt64) async throws {
        var random = SeededGenerator(seed: seed)
        let clock = TestClock()
        for _ in 0..<20 {
            let cache = MemoryCache(
                Bool.random(using: &random) ? nil : TokenInformation(token: "a", expirationDate: clock.now + 10))
            var session = patientSession(cache: cache, now: { clock.now })
            let seen = Model.listen(session)
            let kinds = (0..<12).map { _ in Int.random(in: 0..<10, using: &random) }
            await withTaskGroup(of: Void.self) { group in
                for kind in kinds {
                    group.addTask { [session] in
                        switch kind {
                        case 0, 1: _ = try? await session.open()
                        case 2: _ = try? await session.open(login: { TokenInformation(token: "b") })
                        case 3: _ = try? await session.open(login: { throw Trouble() })
                        case 4: await session.close()
                        case 5: _ = try? await session.signOut()
                        case 6: _ = try? await session.reload()
                        case 7: try? await cache.clear()
                        default: _ = try? await session.token(refresh: { _ in TokenInformation(token: "c") })
                        }
                    }
                }
            }
            try await session.signOut()
            #expect(cache.information == nil)
            #expect(session.state.isClosed)
            session = patientSession(cache: cache)
            let states = await seen.value
            #expect(states.first == .created && states.last?.isClosed == true)
            for (before, after) in zip(states, states.dropFirst()) { #expect(table[before]?.contains(after) == true) }
        }
    }
}
