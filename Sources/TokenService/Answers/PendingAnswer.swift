package import HTTP
internal import TokenStore

/// An answer that has to be waited for, as a store or whoever else is asked gives it later.
///
/// Whoever makes one has all that it needs of the request. The connection counts its `bytes`, calls `begin`, waits no longer
/// than its `timeLimit`, and says so when it gives up or when its client has left. What was begun then goes on to its end,
/// and its answer is dropped. The answer that comes may be another pending one: a request goes on in as many steps as it
/// takes.
///
/// Belongs to its loop's thread.
package class PendingAnswer {
    private enum State {
        /// `begin` has not been called, or has not returned.
        case new
        /// The answer came before `begin` returned.
        case answered(Answer)
        /// The taker waits.
        case awaited(any AnswerTaker)
        /// The taker gave up before the answer came.
        case abandoned
        /// The answer was given or dropped.
        case over
    }

    /// Bytes of memory that it takes while it waits.
    package let bytes: Int
    /// How long its client waits; nil when the answer always comes in time.
    package let timeLimit: Duration?
    /// Whether beginning it may take some milliseconds.
    package let takesLong: Bool
    private var state = State.new

    init(bytes: Int, timeLimit: Duration?, takesLong: Bool = false) {
        self.bytes = bytes
        self.timeLimit = timeLimit
        self.takesLong = takesLong
    }

    // MARK: - For whoever waits

    /// Has the answer made.
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

    /// Gives up before `begin`, as there is no room for its bytes, and returns the answer that tells the client so.
    package final func refuse() -> Response {
        abandon()
        return failure(.overloaded(.buffers))
    }

    /// Gives up after the time limit, and returns the answer that tells the client so.
    package final func timeOut() -> Response {
        abandon()
        return failure(.overloaded(.unanswered(limit: timeLimit ?? .zero)))
    }

    /// Gives up, as the client has left.
    package final func abandon() {
        state = .abandoned
    }

    // MARK: - For whoever answers

    /// Begins what the answer needs; nothing for what has begun already.
    func start() {}

    /// The answer to a client whose wait was ended by an error, which this reports.
    func failure(_ error: StoreError) -> Response {
        preconditionFailure("each kind of pending answer has its own failure")
    }

    /// Gives the answer, once.
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
