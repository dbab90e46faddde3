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
        PendingAnswer(bytes: 10, timeLimit: nil, failure: { _ in Response(body: []) })
    }

    private static var answer: Answer { .now(Response(body: [])) }

    @Test("the taker gets the answer, unless it comes at once or the taker has given up")
    func answers() {
        let (atOnce, later, abandoned) = (Self.pending(), Self.pending(), Self.pending())
        let taker = Taker()
        atOnce.finish(Self.answer)
        #expect(atOnce.begin(for: taker) != nil)
        #expect(later.begin(for: taker) == nil)
        #expect(abandoned.isWaiting && abandoned.begin(for: taker) == nil && abandoned.isWaiting)
        abandoned.abandon()
        // A store can see that nobody waits any more; what was begun nevertheless may still end.
        #expect(!abandoned.isWaiting)
        abandoned.finish(Self.answer)
        #expect(taker.count == 0)
        later.finish(Self.answer)
        #expect(taker.count == 1)
    }

    @Test("changes are made in their order, also after one that leads to another pending answer, and also for nobody")
    func changes() {
        for isAbandoned in [false, true] {
            var made: [Int] = []
            let (first, second, taker) = (Self.pending(), Self.pending(), Taker())
            let note: (Int) -> Answer.Change = { number in
                { answer, _ in
                    made.append(number)
                    return answer
                }
            }
            // The second one waits once more itself.
            let wait: Answer.Change = { answer, waiting in waiting.map { .later($0) } ?? answer }
            _ = Answer.later(first).then(note(1)).then { _, _ in .later(second) }.then(note(2)).then(wait).then(note(3))
            #expect(first.begin(for: taker) == nil)
            if isAbandoned { first.abandon() }
            first.finish(Self.answer)
            #expect(made == [1])
            if !isAbandoned { #expect(second.begin(for: taker) == nil) }
            second.finish(Self.answer)
            #expect(made == [1, 2])
            second.finish(Self.answer)
            #expect(made == [1, 2, 3])
            #expect(taker.count == (isAbandoned ? 0 : 2))
        }
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
