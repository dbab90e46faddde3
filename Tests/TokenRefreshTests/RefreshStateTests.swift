#if TokenRefresh
import Synchronization
import System
import Testing
import TokenStore

@testable import TokenRefresh

@Suite struct RefreshStateTests {
    private let start = MonotonicTime(nanoseconds: 1_000_000_000_000)
    private func after(_ seconds: Int) -> MonotonicTime { start + Duration.seconds(seconds) }

    /// - Parameter mark: The lease's second word.
    private func stored(_ login: String, of id: String? = nil, version: Int64 = 1, mark: String? = nil) throws
        -> StoredToken
    {
        let plain = Array("{\"access_token\":\"\(login)\",\"refresh_token\":\"r\(login)\",\"expires_in\":1}".utf8)
        let token = try #require(RefreshableToken(plain, writtenAt: 0, by: .test(.oauth2)))
        return try #require(
            StoredToken(
                mark.map(token.marked) ?? plain, TokenVersion(rawValue: version), of: Array((id ?? login).utf8),
                writtenAt: 0,
                .test(.oauth2)))
    }

    private func tokens(_ refreshToken: String) throws -> ProviderOutcome {
        let answer = Array("{\"access_token\":\"n\",\"refresh_token\":\"\(refreshToken)\"}".utf8)
        let members = try #require(JSONMembers(answer))
        return .tokens(try #require(ProviderTokens(members)))
    }

    private func end(_ id: [UInt8], _ state: inout RefreshState) {
        _ = state.noteEndOfExchange()
        _ = state.end(id)
    }

    @Test func `one exchange for a token, whoever asks, and one each for others`() throws {
        var state = RefreshState(isRepeatable: false)
        let (a, b) = (try stored("a"), try stored("b"))
        #expect(state.decide(about: a, waits: true, at: start) == .exchange)
        #expect(state.decide(about: a, waits: false, at: start) == .join)
        #expect(state.decide(about: b, waits: true, at: start) == .exchange)
        let woken = Mutex<[String]>([])
        let first = state.join(a.id) { _ in woken.withLock { $0.append("first") } }
        _ = state.join(a.id) { _ in woken.withLock { $0.append("second") } }
        // One has waited long enough.
        state.leave(a.id, first)?(.later)
        let isGone = state.leave(a.id, first) == nil
        #expect(isGone)
        _ = state.noteEndOfExchange()
        for wake in state.end(a.id) { wake(.later) }
        #expect(woken.withLock(\.self) == ["first", "second"])
        #expect(state.exchanging == 1)
        #expect(state.decide(about: a, waits: true, at: start) == .exchange)
    }

    @Test func `a provider that stalls gets no more than its share`() throws {
        var state = RefreshState(isRepeatable: false)
        for number in 0..<RefreshState.exchangeLimit {
            #expect(state.decide(about: try stored("\(number)"), waits: false, at: start) == .exchange)
        }
        #expect(state.decide(about: try stored("nobody waits"), waits: false, at: start) == .advise(.later))
        // Tokens with waiting requests are exchanged in turn, unless those have given up.
        for name in ["gone", "next", "last"] {
            #expect(state.decide(about: try stored(name), waits: true, at: start) == .join)
            #expect(state.decide(about: try stored(name), waits: true, at: start) == .join)
        }
        for name in ["next", "last"] { _ = state.join(Array(name.utf8)) { _ in } }
        let (next, givenUp) = state.noteEndOfExchange()
        #expect(next?.id == Array("next".utf8) && givenUp == [Array("gone".utf8)])
        #expect(state.exchanging == RefreshState.exchangeLimit)
        // When the provider fails, the queue is given up.
        _ = state.note(.failed(.unavailable, retryAfter: nil), for: try stored("next"), at: start)
        let rest = state.noteEndOfExchange()
        #expect(rest.next == nil && rest.givenUp == [Array("last".utf8)])
        #expect(state.end(Array("last".utf8)).count == 1)
    }

    @Test func `tokens that are refused under one id reach the provider more and more rarely`() throws {
        var state = RefreshState(isRepeatable: false)
        var (now, tries) = (0, 0)
        while now < 3_600 {
            let made = try stored("made-up-\(now)", of: "mallory")
            if state.decide(about: made, waits: true, at: after(now)) == .exchange {
                tries += 1
                _ = state.note(.refused, for: made, at: after(now))
                end(made.id, &state)
            }
            now += 1
        }
        #expect((2..<20).contains(tries))
        #expect(state.decide(about: try stored("another's"), waits: true, at: after(now)) == .exchange)
    }

    @Test func `another's mark is waited for, and never exchanged unless a repeat is harmless`() throws {
        for isRepeatable in [false, true] {
            var state = RefreshState(isRepeatable: isRepeatable)
            let marked = try stored("a", mark: "server-2")
            #expect(state.decide(about: marked, waits: false, at: start) == .advise(.later))
            #expect(state.decide(about: marked, waits: true, at: after(59)) == .watch)
            #expect(state.decide(about: marked, waits: true, at: after(59)) == .join)
            _ = state.end(marked.id)
            #expect(
                state.decide(about: marked, waits: true, at: after(60)) == (isRepeatable ? .exchange : .advise(.login)))
            if isRepeatable { end(marked.id, &state) }
            // Another exchange of it, whose time begins now.
            let next = try stored("a", version: 2, mark: "server-3")
            #expect(state.decide(about: next, waits: true, at: after(60)) == .watch)
        }
    }

    @Test func `a token that is spent is never exchanged`() throws {
        var state = RefreshState(isRepeatable: true)
        for seconds in [0, 100, 10_000] {
            let spent = try stored("a", mark: "spent")
            #expect(state.decide(about: spent, waits: true, at: after(seconds)) == .advise(.login))
        }
    }

    @Test func `failures of the provider are followed by longer and longer pauses, and then by one try`() throws {
        var state = RefreshState(isRepeatable: false)
        let (a, b) = (try stored("a"), try stored("b"))
        var now = 0
        for (number, pause) in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].enumerated() {
            // The provider may fail for one token only, so the next try is another's, if there is one.
            let (tried, other) = number % 2 == 0 ? (a, b) : (b, a)
            #expect(state.decide(about: tried, waits: true, at: after(now)) == .exchange)
            #expect(
                state.decide(about: other, waits: true, at: after(now)) == (number == 0 ? .exchange : .advise(.later)))
            if number == 0 { end(other.id, &state) }
            let isNews = state.note(.failed(.unavailable, retryAfter: nil), for: tried, at: after(now))
            #expect(isNews == (number == 0))
            end(tried.id, &state)
            #expect(state.decide(about: other, waits: true, at: after(now + pause - 1)) == .advise(.later))
            #expect(state.decide(about: tried, waits: true, at: after(now + pause)) == .advise(.later))
            now += pause
        }
        #expect(state.decide(about: b, waits: true, at: after(now)) == .exchange)
        let isNews = state.note(try tokens("s"), for: b, at: after(now))
        #expect(isNews)
        #expect(state.failures == 0 && state.fault == nil)
        end(b.id, &state)
        now += 300
        #expect(state.decide(about: b, waits: true, at: after(now)) == .exchange)
        #expect(state.counts.failed["unavailable"] == 11)
    }

    @Test(arguments: ["failed", "unknown", "rejected"])
    func `a user for whose tokens alone the provider fails keeps nobody else from it`(_ kind: String) throws {
        var state = RefreshState(isRepeatable: false)
        var (tries, refreshed) = (0, 0)
        for second in 0..<1_000 {
            // Always the first to ask, and each time with another token.
            for number in 0..<2 {
                let bogus = try stored("bogus-\(second)-\(number)", of: "evil")
                guard state.decide(about: bogus, waits: true, at: after(second)) == .exchange else { continue }
                tries += 1
                let outcome: ProviderOutcome =
                    switch kind {
                    case "failed": .failed(.unavailable, retryAfter: nil)
                    case "unknown": .unknown(.lost, retryAfter: nil)
                    default: .rejected(isExplained: false)
                    }
                _ = state.note(outcome, for: bogus, at: after(second))
                end(bogus.id, &state)
            }
            let other = try stored("\(second)")
            if state.decide(about: other, waits: true, at: after(second)) == .exchange {
                refreshed += 1
                _ = state.note(try tokens("s"), for: other, at: after(second))
                end(other.id, &state)
            }
        }
        #expect(tries < 25 && refreshed > 980)
        // Its count is forgotten at last.
        let later = try stored("later", of: "evil")
        for (second, pause) in [(100_000, 2), (100_002, 4)] {
            #expect(state.decide(about: later, waits: true, at: after(second)) == .exchange)
            _ = state.note(.failed(.unavailable, retryAfter: nil), for: later, at: after(second))
            end(later.id, &state)
            _ = state.note(try tokens("s"), for: try stored("another"), at: after(second + 1))
            #expect(state.decide(about: later, waits: true, at: after(second + pause - 1)) == .advise(.later))
        }
    }

    @Test func `the provider is left alone for as long as it says, up to an hour`() throws {
        for (asked, pause) in [(30, 30), (86_400, 3_600), (0, 1)] {
            var state = RefreshState(isRepeatable: false)
            let (a, b) = (try stored("a"), try stored("b"))
            #expect(state.decide(about: a, waits: true, at: start) == .exchange)
            _ = state.note(.failed(.limited, retryAfter: asked), for: a, at: start)
            end(a.id, &state)
            #expect(state.decide(about: b, waits: true, at: after(pause - 1)) == .advise(.later))
            #expect(state.decide(about: a, waits: true, at: after(pause)) == .advise(.later))
            #expect(state.decide(about: b, waits: true, at: after(pause)) == .exchange)
            end(b.id, &state)
            #expect(state.decide(about: a, waits: true, at: after(2 * pause)) == .exchange)
        }
    }

    @Test func `a token that is rejected is left alone, and others are not`() throws {
        var state = RefreshState(isRepeatable: false)
        let (a, b) = (try stored("a"), try stored("b"))
        var now = 0
        for pause in [60, 120, 240, 480, 960, 1_920, 3_840, 3_840] {
            #expect(state.decide(about: a, waits: true, at: after(now)) == .exchange)
            let isNews = state.note(.rejected(isExplained: false), for: a, at: after(now))
            #expect(!isNews)
            end(a.id, &state)
            #expect(state.decide(about: a, waits: true, at: after(now + pause - 1)) == .advise(.later))
            #expect(state.decide(about: b, waits: true, at: after(now)) == .exchange)
            end(b.id, &state)
            now += pause
        }
        // Of a new login of the same user, that says nothing.
        let new = try stored("new", of: "a")
        #expect(state.decide(about: new, waits: true, at: after(now - 1)) == .exchange)
        // Two logins in a row: it may reject all of them.
        end(new.id, &state)
        let isExplained = state.note(.rejected(isExplained: true), for: try stored("explained"), at: after(now))
        #expect(!isExplained)
        let isNews = state.note(.rejected(isExplained: false), for: new, at: after(now))
        #expect(isNews && state.fault == .rejected && state.failures == 1)
        // A login that was rejected before says nothing new.
        let isAgain = state.note(.rejected(isExplained: false), for: a, at: after(now))
        #expect(!isAgain && state.failures == 1)
        #expect(state.decide(about: b, waits: true, at: after(now)) == .advise(.later))
        #expect(state.decide(about: b, waits: true, at: after(now + 1)) == .exchange)
        end(b.id, &state)
        let isGood = state.note(try tokens("rb"), for: b, at: after(now + 1))
        #expect(isGood && state.fault == nil)
    }

    @Test func `a provider that keeps its refresh tokens may be asked again, and one that replaces them may not`()
        throws
    {
        var state = RefreshState(isRepeatable: false)
        let a = try stored("a")
        #expect(!state.mayRepeat)
        _ = state.note(try tokens("ra"), for: a, at: start)
        #expect(state.mayRepeat)
        _ = state.note(try tokens("s"), for: a, at: start)
        #expect(!state.mayRepeat)
        // Some keep it only for a while, or for some clients.
        _ = state.note(try tokens("ra"), for: a, at: start)
        #expect(!state.mayRepeat)
    }

    @Test func `nothing begins while the server stops`() throws {
        var state = RefreshState(isRepeatable: false)
        state.isDraining = true
        #expect(state.decide(about: try stored("a"), waits: true, at: start) == .advise(.later))
    }
}
#endif
