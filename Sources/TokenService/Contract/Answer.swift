package import HTTP

/// The service's answer to a request, now or later.
package enum Answer {
    /// The whole answer.
    case now(Response)
    /// A long answer, made in pieces while the client reads them.
    case inPieces(LongAnswer)
    /// An answer that has to be waited for.
    case later(PendingAnswer)
}

/// Waits for a pending answer.
///
/// Belongs to its loop's thread.
package protocol AnswerTaker: AnyObject {
    /// Takes the answer of the `PendingAnswer` that was begun for this taker; called once, after `begin` has returned.
    func take(_ answer: Answer)
}
