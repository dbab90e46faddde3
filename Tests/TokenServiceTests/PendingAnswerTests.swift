import HTTP
import Testing
import TokenStore

@testable import TokenService

@Suite struct PendingAnswerTests {
    private final class Taker: AnswerTaker {
        private(set) var count = 0

        func take(_ answer: Answer) {
            count += 1
        }
    }

    private static func pending() -> PendingAnswer {
        PendingAnswer(bytes: 10, timeLimit: nil)
    }

    private static var answer: Answer { .now(Response(body: [])) }

    @Test("the taker gets the answer, unless it comes at once or the taker has given up")
    func answers() {
        let (atOnce, later, abandoned) = (Self.pending(), Self.pending(), Self.pending())
        let taker = Taker()
        atOnce.finish(Self.answer)
        #expect(atOnce.begin(for: taker) != nil)
        #expect(later.begin(for: taker) == nil)
        #expect(abandoned.begin(for: taker) == nil)
        abandoned.abandon()
        abandoned.finish(Self.answer)
        #expect(taker.count == 0)
        later.finish(Self.answer)
        #expect(taker.count == 1)
    }

    @Test("a second outcome stops the program: it could be another client's")
    func secondOutcome() async {
        await #expect(processExitsWith: .failure) {
            let (pending, taker) = (PendingAnswerTests.pending(), Taker())
            _ = pending.begin(for: taker)
            pending.finish(PendingAnswerTests.answer)
            pending.finish(PendingAnswerTests.answer)
        }
        await #expect(processExitsWith: .failure) {
            let pending = PendingAnswerTests.pending()
            pending.abandon()
            pending.finish(PendingAnswerTests.answer)
            pending.finish(PendingAnswerTests.answer)
        }
    }
}
