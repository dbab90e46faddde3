import HTTP
import System
import Testing
import TokenStore

@testable import TokenService

/// A store that fails: clients read what they read when nothing is stored, and nothing is concluded from that.
@Suite struct StoreFailureTests {
    /// The statuses of some GETs from one address, in mode open with a limit of failures.
    private func statuses(_ count: Int, failure: StoreError?) throws -> [UInt16] {
        let handle = MemoryStoreHandle()
        handle.failure = failure
        let guardian = AccessGuard(limiter: FailureLimiter(FailureRate("3/h")), trail: nil) { _ in }
        let router = RequestRouter(TokenService(handle), access: nil, guardian: guardian, api: nil)
        let reader = RequestReader(reading: "GET /token?unique_id=a HTTP/1.1\r\nHost: a\r\n\r\n")
        var statuses: [UInt16] = []
        for _ in 0..<count {
            let answer = router.answer(
                to: reader.request, in: reader.requestBytes, requestID: .none, from: .any("192.0.2.1"))
            if case .now(let response) = answer { statuses.append(response.status.rawValue) }
        }
        return statuses
    }

    @Test
    func `an outage is no guess`() throws {
        #expect(try statuses(5, failure: nil) == [200, 200, 200, 429, 429])
        #expect(try statuses(5, failure: .closed) == [200, 200, 200, 200, 200])
    }

    private final class Taker: AnswerTaker {
        var status: UInt16?

        func take(_ answer: Answer) {
            if case .now(let response) = answer { status = response.status.rawValue }
        }
    }

    @Test
    func `guesses that wait for the store at the same time are limited like others`() throws {
        let handle = MemoryStoreHandle()
        handle.waiting = []
        let guardian = AccessGuard(limiter: FailureLimiter(FailureRate("3/h")), trail: nil) { _ in }
        let router = RequestRouter(TokenService(handle), access: nil, guardian: guardian, api: nil)
        let reader = RequestReader(reading: "GET /token?unique_id=a HTTP/1.1\r\nHost: a\r\n\r\n")
        let takers = (0..<5).map { _ in
            let taker = Taker()
            let answer = router.answer(
                to: reader.request, in: reader.requestBytes, requestID: .none, from: .any("192.0.2.1"))
            if case .later(let pending) = answer, pending.begin(for: taker) != nil { Issue.record("it does not wait") }
            return taker
        }
        for completion in handle.waiting ?? [] { completion(.success(.nothing)) }
        #expect(takers.map(\.status) == [200, 200, 200, 429, 429])
        guard let wait = guardian.limited(IPAddress("192.0.2.1"))?.extras?.retryAfter else { throw StoreError.closed }
        #expect(wait <= 1_200)
    }

    @Test
    func `whoever waits as long as a refusal says is not refused for having come a moment too early`() throws {
        let guardian = AccessGuard(limiter: FailureLimiter(FailureRate("3/h")), trail: nil) { _ in }
        let address = IPAddress("192.0.2.1")
        let began = MonotonicTime.now
        for _ in 0..<3 {
            #expect(guardian.limited(address) == nil)
            guardian.noteGuess(from: address)
        }
        let refusal = guardian.limited(address)
        let seconds = try #require(refusal?.extras?.retryAfter)
        // The first failure is made up for after a third of an hour; it was noted before now.
        let waited = MonotonicTime.now.nanoseconds - began.nanoseconds
        #expect(UInt64(seconds) * 1_000_000_000 + waited >= 1_200 * 1_000_000_000)
    }

    @Test(arguments: ["GET", "POST"])
    func `an answer says when to come again if the server fails, and only then`(method: String) async {
        for failure: StoreError? in [nil, .closed, .overloaded(.buffers), .read(StoreFault("damaged"))] {
            let handle = MemoryStoreHandle()
            handle.failure = failure
            let request = "\(method) /token?unique_id=a&token_info=b HTTP/1.1\r\nHost: a\r\n\r\n"
            let response = await TokenService(handle).answer(Array(request.utf8))
            #expect(response.status == .ok)
            #expect((response.outcome == .failed) == (failure != nil))
            #expect((response.extras?.retryAfter ?? 0 > 0) == (failure != nil))
        }
        for place: AccessFailure.Place in [.parameter(isWrite: method == "POST"), .field] {
            #expect(AccessFailure.unrecorded.response(in: place).outcome == .failed)
            #expect(AccessFailure.unknown.response(in: place).outcome == .refused)
        }
    }

    @Test
    func `an outage says nothing of the token's version`() {
        let failed = TokenService(MemoryStoreHandle()).failed(.closed, .none, isWrite: false)
        #expect(Preconditions(match: .any).applied(to: failed).status == .ok)
        #expect(Preconditions(match: .any).applied(to: .notFound).status == .preconditionFailed)
    }
}
