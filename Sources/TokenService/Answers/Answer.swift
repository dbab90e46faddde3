package import HTTP

/// What a request comes to.
package enum Answer {
    /// The answer is here.
    case now(Response)
    /// The answer is here, and is so long that it is made in pieces while the client takes them.
    case inPieces(LongAnswer)
    /// The answer has to be waited for.
    case later(PendingAnswer)
}

/// Waits for an answer.
///
/// Belongs to its loop's thread.
package protocol AnswerTaker: AnyObject {
    /// Takes the answer of a `PendingAnswer` that was begun for this taker: once, and not within `begin`.
    func take(_ answer: Answer)
}
