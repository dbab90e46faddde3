package import HTTP
internal import TokenStore

/// An answer that comes later: from a store, or from another service that has to be asked.
///
/// Each kind is a subclass that holds everything it needs of the request. The connection counts its `bytes` against
/// `limits.buffers`, calls `begin`, and waits for at most `timeLimit`. If it gives up or its client disconnects, what was begun
/// runs to its end and its answer is dropped; what a store has not begun yet, it need not begin. The answer may be another pending
/// one, so a request can take several such steps.
///
/// Belongs to its loop's thread.
package class PendingAnswer: OutcomeWaiter {
    private enum State {
        /// `begin` has not been called, or has not returned.
        case new
        /// The answer came before `begin` returned.
        case answered(Answer)
        /// The taker waits.
        case awaited(any AnswerTaker)
        /// The taker gave up; the answer will be dropped.
        case abandoned
        /// The answer has been given or dropped.
        case over
    }

    /// Bytes of memory that are held until the answer comes.
    package let bytes: Int
    /// How long the client waits; nil if it waits until the answer comes.
    package let timeLimit: Duration?
    /// Whether `begin` may take some milliseconds.
    package let takesLong: Bool
    private var state = State.new

    init(bytes: Int, timeLimit: Duration?, takesLong: Bool = false) {
        self.bytes = bytes
        self.timeLimit = timeLimit
        self.takesLong = takesLong
    }

    // MARK: - The side that waits

    /// Begins what the answer needs.
    ///
    /// - Returns: The answer if it comes at once; nil if the taker gets it later.
    package final func begin(for taker: any AnswerTaker) -> Answer? {
        start()
        switch state {
        case .answered(let answer):
            state = .over
            return answer
        case .new:
            state = .awaited(taker)
            return nil
        case .awaited, .abandoned, .over: preconditionFailure("a pending answer is begun once")
        }
    }

    /// Gives up before `begin`, as there is no room for its bytes, and returns the answer of failure.
    package final func refuse() -> Response {
        abandon()
        return failure(.overloaded(.buffers))
    }

    /// Gives up after the time limit, and returns the answer of failure.
    package final func timeOut() -> Response {
        abandon()
        return failure(.overloaded(.unanswered(limit: timeLimit ?? .zero)))
    }

    /// Gives up, as the client has disconnected.
    package final func abandon() {
        state = .abandoned
    }

    /// Whether the answer would reach somebody.
    package final var isWaiting: Bool {
        switch state {
        case .new, .answered: true
        case .awaited(let taker): taker.isWaiting
        case .abandoned, .over: false
        }
    }

    // MARK: - The side that answers

    /// Begins what the answer needs, unless that was begun before the answer was made.
    func start() {}

    /// Reports an error and returns the answer of failure.
    func failure(_ error: StoreError) -> Response {
        preconditionFailure("each kind of pending answer has its own failure")
    }

    /// Gives the answer; to be called once.
    final func finish(_ answer: Answer) {
        switch state {
        case .new: state = .answered(answer)
        case .awaited(let taker):
            state = .over
            taker.take(answer)
        case .abandoned: state = .over
        case .answered, .over: preconditionFailure("an outcome comes once")
        }
    }
}
