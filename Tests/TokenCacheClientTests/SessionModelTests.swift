import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

/// The transitions of the SDK, written down once more.
private let table: [Session.State: Set<Session.State>] = [
    .created: [.createdTokenLoaded, .createdOpening, .closedLoginFailed],
    .createdTokenLoaded: [.open, .closedLoginFailed], .createdOpening: [.open, .closedLoginFailed],
    .open: [.openTokenExtended, .closed], .openTokenExtended: [.openTokenExtended, .closed],
    .closedLoginFailed: [], .closed: [],
]

/// Random operations and failures on sessions of one user, and what must come of them.
private struct Model {
    var random: SeededGenerator
    let clock = TestClock()
    let cache = MemoryCache()
    var session: Session
    var state = Session.State.created
    var held: TokenInformation?
    var isUncached = false
    var lastRefresh = Date.distantPast
    var lastCaching = Date.distantPast
    var isFailing = false
    var number = 0
    var seen: Task<[Session.State], Never>
    var steps = 0

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        session = Session(cache: cache, permissions: ["email"], now: { [clock] in clock.now })
        seen = Self.listen(session)
    }

    static func listen(_ session: Session) -> Task<[Session.State], Never> {
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
            refreshDate: clock.now - (chance(3) ? 100_000 : 0), permissions: chance(8) ? [] : ["email"])
    }

    func isAccepted(_ token: TokenInformation?) -> Bool {
        guard let token, let expiration = token.expirationDate else { return false }
        return token.permissions.contains("email") && expiration > clock.now - 300
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
        let information = await session.information
        #expect(information == held)
        if state.isFinal, chance(2) { try await begin() }
    }

    private mutating func otherDevice() async throws {
        // One that works, whatever this device's network does.
        let new = chance(3) ? nil : newToken()
        cache.contents.withLock { $0.information = new }
    }

    private mutating func load() async throws {
        let (before, isFailing) = (state, isFailing)
        do {
            try await session.load()
            #expect(before == .created && !isFailing)
            if isAccepted(cache.information) {
                state = .createdTokenLoaded
                held = cache.information
            }
        } catch {
            #expect(before != .created ? error is SessionError : isFailing)
        }
    }

    private mutating func open() async throws {
        let (kind, before, cached) = (Int.random(in: 0..<4, using: &random), state, cache.information)
        var new = newToken()
        new.token = kind == 2 ? " " : new.token
        let login: Session.Login? =
            switch kind {
            case 0: nil
            case 3: { throw Trouble() }
            default: { [new] in new }
            }
        let error: (any Error)?
        do {
            try await session.open(login: login)
            error = nil
        } catch let thrown { error = thrown }
        switch before {
        case .created where isFailing: #expect(error is Trouble)
        case .created where isAccepted(cached): (state, held) = (.open, cached)
        case .created where kind == 0: #expect(error == nil)
        case .created where kind == 1:
            (state, held, lastRefresh, lastCaching) = (.open, new, clock.now, clock.now)
            #expect(cache.information == new)
        case .created:
            #expect(error != nil)
            state = .closedLoginFailed
        case .createdTokenLoaded: state = .open
        default: #expect(error as? SessionError == .cannotOpen(before))
        }
    }

    private mutating func token() async throws {
        let (kind, before, time) = (Int.random(in: 0..<3, using: &random), state, clock.now)
        let new = newToken()
        let refresh: Session.Refresh? =
            switch kind {
            case 0: nil
            case 1: { _ in throw Trouble() }
            default: { [new] _ in new }
            }
        let result: Result<TokenInformation, any Error>
        do {
            result = .success(try await session.token(refresh: refresh))
        } catch {
            result = .failure(error)
        }
        guard before.isOpen, let old = held, let expiration = old.expirationDate else {
            #expect(throws: SessionError.notOpen(before)) { try result.get() }
            return
        }
        // The attempt to cache again is settled before anything else is looked at.
        if isUncached, time.timeIntervalSince(lastCaching) > 60 {
            lastCaching = time
            await session.writes.finish()
            if !isFailing { isUncached = false }
            let session = session
            try await until { await (session.cachingError == nil) == !isFailing }
        }
        let isUrgent = expiration <= time + 60
        let isDue =
            time.timeIntervalSince(old.refreshDate ?? time) > 86_400 && time.timeIntervalSince(lastRefresh) > 3_600
        switch kind {
        case 0 where expiration <= time - 300: #expect(throws: SessionError.expired) { try result.get() }
        case 0: #expect(try result.get() == old)
        case _ where !isUrgent && !isDue: #expect(try result.get() == old)
        case 1:
            lastRefresh = time
            if isUrgent { #expect(throws: Trouble.self) { try result.get() } } else { #expect(try result.get() == old) }
        default:
            #expect(try result.get() == new)
            (state, held, lastRefresh, lastCaching, isUncached) = (.openTokenExtended, new, time, time, isFailing)
            if !isFailing { #expect(cache.information == new) }
        }
    }

    private mutating func reload() async throws {
        let before = state
        do {
            try await session.reload()
            #expect(before.isOpen && !isFailing)
            guard !isUncached else { return }
            if cache.information == nil {
                (state, held) = (.closed, nil)
            } else if isAccepted(cache.information), cache.information != held {
                (state, held) = (.openTokenExtended, cache.information)
            }
        } catch {
            #expect(before.isOpen ? isFailing : error as? SessionError == .notOpen(before))
        }
    }

    private mutating func close() async throws {
        let (isClearing, before) = (chance(2), cache.information)
        do {
            try await session.close(clearingToken: isClearing)
            #expect(cache.information == (isClearing ? nil : before))
        } catch {
            #expect(isClearing && isFailing)
            #expect(cache.information == before)
        }
        if !state.isFinal { state = state.isOpen ? .closed : .closedLoginFailed }
        held = nil
    }

    /// The next session, after a look at all states of the last one.
    mutating func begin() async throws {
        if !state.isFinal { try await close() }
        let states = await seen.value
        #expect(states.first == .created && states.last == state)
        for (before, after) in zip(states, states.dropFirst()) { #expect(table[before]?.contains(after) == true) }
        session = Session(cache: cache, permissions: ["email"], now: { [clock] in clock.now })
        seen = Self.listen(session)
        (state, held, isUncached, lastRefresh, lastCaching) = (.created, nil, false, .distantPast, .distantPast)
    }
}

@Suite struct SessionModelTests {
    @Test func `the table of the library is that of the SDK`() {
        for state in Session.State.allCases { #expect(table[state] == state.successors) }
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
            let session = Session(cache: cache, now: { clock.now })
            let seen = Model.listen(session)
            let kinds = (0..<12).map { _ in Int.random(in: 0..<10, using: &random) }
            await withTaskGroup(of: Void.self) { group in
                for kind in kinds {
                    group.addTask {
                        switch kind {
                        case 0, 1: _ = try? await session.open()
                        case 2: _ = try? await session.open(login: { TokenInformation(token: "b") })
                        case 3: _ = try? await session.open(login: { throw Trouble() })
                        case 4: try? await session.close()
                        case 5: try? await session.close(clearingToken: true)
                        case 6: _ = try? await session.reload()
                        case 7: try? await cache.clear()
                        default: _ = try? await session.token(refresh: { _ in TokenInformation(token: "c") })
                        }
                    }
                }
            }
            try await session.close(clearingToken: true)
            #expect(cache.information == nil)
            let states = await seen.value
            #expect(states.first == .created && states.last == session.state && session.state.isFinal)
            for (before, after) in zip(states, states.dropFirst()) { #expect(table[before]?.contains(after) == true) }
        }
    }
}
