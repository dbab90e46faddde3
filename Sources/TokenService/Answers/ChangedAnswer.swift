internal import HTTP
internal import TokenStore

extension Answer {
    /// Changes an answer, or what it leads to, once it is there.
    ///
    /// The change also runs if the client has left in the meantime, so it may record what was done for that client. It does not run
    /// for a pending answer that was given up: then the answer of failure goes out as it is.
    func then(_ change: @escaping (Answer) -> Answer) -> Answer {
        switch self {
        case .now, .inPieces: change(self)
        case .later(let pending): .later(ChangedAnswer(pending, change))
        }
    }
}

/// A pending answer that is changed when it comes.
private final class ChangedAnswer: PendingAnswer, AnswerTaker {
    private let original: PendingAnswer
    private let change: (Answer) -> Answer

    init(_ original: PendingAnswer, _ change: @escaping (Answer) -> Answer) {
        self.original = original
        self.change = change
        super.init(bytes: original.bytes, timeLimit: original.timeLimit, takesLong: original.takesLong)
    }

    override func start() {
        if let answer = original.begin(for: self) { take(answer) }
    }

    func take(_ answer: Answer) { finish(answer.then(change)) }

    override func failure(_ error: StoreError) -> Response { original.failure(error) }
}
