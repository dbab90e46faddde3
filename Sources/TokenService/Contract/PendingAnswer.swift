package import HTTP
package import TokenStore

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

/// A value that other threads may hold for a loop, and that only the loop's thread uses.
final class LoopBound<Value>: @unchecked Sendable {
    // Unchecked: other threads only hold the reference.

    var value: Value

    init(_ value: Value) { self.value = value }
}

/// An answer that comes later: from a store, or from another service that has to be asked.
///
/// It holds everything that it needs of the request. The connection counts its `bytes` against `limits.buffers`, calls `begin`,
/// and waits for at most `timeLimit`. If it gives up or its client disconnects, what was begun runs to its end and its answer is
/// dropped; a store need not begin what it has not begun yet. The answer may be another pending one, so a request can take
/// several such steps.
///
/// Belongs to its loop's thread.
package final class PendingAnswer: OutcomeWaiter {
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
    private var sharedWaiter: SharedWaiter?
    /// Emptied by `begin`, so that a token is not held twice.
    private var work: Work
    /// What is done to the answer when it comes, in this order.
    private var changes: [Answer.Change] = []
    private let failure: Failure

    /// What has to be done for the answer.
    private enum Work {
        /// It was already begun, maybe before this object was made.
        case begun
        case operation((PendingAnswer) -> Void)
        /// Storing a token: the usual operation, which is therefore spared the memory of closures.
        case storing(TokenService, [UInt8], id: [UInt8], WriteCondition)
    }

    /// Reports an error and makes the answer of failure.
    private enum Failure {
        case closure((StoreError) -> Response)
        /// The answer of `refusal` or, if that is nil, of a failed write.
        case ofWrite(TokenService, RequestID, showsVersion: Bool, refusal: (StoreError) -> Response?)
    }

    /// - Parameters:
    ///   - failure: Reports an error and gives its answer.
    ///   - work: Begins what the answer needs; nil if it was begun.
    init(
        bytes: Int, timeLimit: Duration?, takesLong: Bool = false, failure: @escaping (StoreError) -> Response,
        work: ((PendingAnswer) -> Void)? = nil
    ) {
        self.bytes = bytes
        self.timeLimit = timeLimit
        self.takesLong = takesLong
        self.failure = .closure(failure)
        self.work = work.map(Work.operation) ?? .begun
    }

    /// The answer to a request that stores a token.
    init(
        storing tokenInfo: [UInt8], under id: [UInt8], if condition: WriteCondition, _ service: TokenService,
        _ requestID: RequestID, showsVersion: Bool, refusal: @escaping (StoreError) -> Response?
    ) {
        bytes = Token.waitingBytes(id: id, info: tokenInfo)
        timeLimit = service.timeLimit
        takesLong = false
        failure = .ofWrite(service, requestID, showsVersion: showsVersion, refusal: refusal)
        work = .storing(service, tokenInfo, id: id, condition)
    }

    // MARK: - The side that waits

    /// Begins what the answer needs.
    ///
    /// - Returns: The answer if it comes at once; nil if the taker gets it later.
    package func begin(for taker: any AnswerTaker) -> Answer? {
        var work = Work.begun
        swap(&work, &self.work)
        switch consume work {
        case .begun: break
        case .operation(let begin): begin(self)
        case .storing(let service, let tokenInfo, let id, let condition):
            let completion = Completion<TokenVersion>(for: self) { [self] in finish($0) }
            service.handle.store(tokenInfo, under: id, if: condition, completion: completion)
        }
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
    package func failForLackOfRoom() -> Response {
        abandon()
        return failed(.overloaded(.buffers))
    }

    /// Gives up after the time limit, and returns the answer of failure.
    package func timeOut() -> Response {
        abandon()
        return failed(.overloaded(.unanswered(limit: timeLimit ?? .zero)))
    }

    /// Gives up, as the client has disconnected.
    package func abandon() {
        state = .abandoned
        sharedWaiter?.stop()
    }

    /// Whether a client still waits for the answer.
    package var isWaiting: Bool {
        switch state {
        case .new, .answered, .awaited: true
        case .abandoned, .over: false
        }
    }

    package var shared: SharedWaiter? {
        let waiter = sharedWaiter ?? SharedWaiter()
        sharedWaiter = waiter
        if !isWaiting { waiter.stop() }
        return waiter
    }

    // MARK: - The side that answers

    /// A completion that takes the outcome of what the store was asked for.
    ///
    /// - Parameter answer: Makes the answer to the outcome.
    func completion<Outcome>(_ answer: @escaping (Outcome) -> Answer) -> Completion<Outcome> {
        Completion(for: self) { [self] outcome in
            switch outcome {
            case .success(let outcome): finish(answer(outcome))
            case .failure(let error): finish(.now(failed(error)))
            }
        }
    }

    /// Takes the outcome of storing a token.
    private func finish(_ outcome: Result<TokenVersion, StoreError>) {
        guard case .ofWrite(_, _, let showsVersion, _) = failure else {
            preconditionFailure("only a write stores a token")
        }
        switch outcome {
        case .success(let version):
            var response = Response.stored
            if showsVersion { response.version = version.rawValue }
            finish(.now(response))
        case .failure(let error): finish(.now(failed(error)))
        }
    }

    private func failed(_ error: StoreError) -> Response {
        switch failure {
        case .closure(let response): response(error)
        case .ofWrite(let service, let requestID, _, let refusal):
            refusal(error) ?? service.failed(error, requestID, isWrite: true)
        }
    }

    /// Makes the changes and gives the answer; called once, and once more for each change that has this wait for something else.
    func finish(_ answer: Answer) {
        guard !changes.isEmpty else { return give(answer) }
        var changes: [Answer.Change] = []
        swap(&changes, &self.changes)
        let changed = changes.reduce(answer) { $0.then($1, for: self) }
        if case .later(let pending) = changed, pending === self { return }
        give(changed)
    }

    private func give(_ answer: Answer) {
        switch state {
        case .new: state = .answered(answer)
        case .awaited(let taker):
            state = .over
            taker.take(answer)
        case .abandoned: state = .over
        case .answered, .over: preconditionFailure("an outcome comes once")
        }
    }

    /// Adds a change of the answer, which must not have come yet.
    fileprivate func add(_ change: @escaping Answer.Change) {
        switch state {
        case .new, .awaited, .abandoned: changes.append(change)
        case .answered, .over: preconditionFailure("a change that comes after the answer would be lost")
        }
    }
}

extension Answer {
    /// Changes an answer that is there; the second argument is the object that waits for it, if there is one.
    typealias Change = (Answer, PendingAnswer?) -> Answer

    /// Changes an answer, or what it leads to, once it is there.
    ///
    /// The change also runs if the client has left in the meantime, so it may record what was done for that client. It does not run
    /// for a pending answer that was given up: then the answer of failure goes out as it is. It may return the object that waits, as
    /// an answer that comes later: that object then waits until its `finish` is called again.
    func then(_ change: @escaping Change, for waiting: PendingAnswer? = nil) -> Answer {
        switch self {
        case .now, .inPieces: return change(self, waiting)
        case .later(let pending):
            pending.add(change)
            return self
        }
    }
}
