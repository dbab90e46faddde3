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

    @Test("a store can see that nobody waits any more, also behind an answer that is changed when it comes")
    func waiting() {
        let (original, taker) = (Self.pending(), Taker())
        guard case .later(let changed) = Answer.later(original).then({ $0 }) else {
            Issue.record("the answer does not come later")
            return
        }
        #expect(original.isWaiting && changed.isWaiting)
        #expect(changed.begin(for: taker) == nil)
        #expect(original.isWaiting && changed.isWaiting)
        changed.abandon()
        #expect(!original.isWaiting && !changed.isWaiting)
        // What was begun nevertheless may still end, and reaches nobody.
        original.finish(Self.answer)
        #expect(taker.count == 0)
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
