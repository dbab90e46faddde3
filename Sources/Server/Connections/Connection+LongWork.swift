internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

extension Connection {
    /// Bytes of a long answer that one step makes.
    private static let longStep = 256 << 10

    /// Work that is done a step a turn, after that of short requests.
    enum LongWork {
        case none
        /// Reading the request at hand, whose body is long; refused if it has not begun by then.
        case request(until: MonotonicTime)
        /// Beginning a pending answer that takes long to begin; refused if it has not begun by then.
        case beginning(PendingAnswer, until: MonotonicTime)
        /// Sending the rest of a long answer.
        case pieces(LongAnswer)

        var isPending: Bool {
            if case .none = self { false } else { true }
        }

        /// Bytes of memory that it holds.
        var bytes: Int {
            switch self {
            case .none, .request: 0
            case .beginning(let answer, _): answer.bytes
            case .pieces(let answer): answer.capacity
            }
        }
    }

    /// Waits for its part of a turn, or does one step.
    mutating func workLong(_ mayWorkLong: inout Bool, on worker: Worker, for driver: ConnectionDriver) -> Pause? {
        if worker.loop.isAbandoned {
            longWork = .none
            return output.isEmpty ? .end : .finish
        }
        guard mayWorkLong else {
            // The answers to earlier requests need not wait with it.
            if let pause = send(on: worker) { return pause }
            if case .pieces = longWork { shrinkBuffers(on: worker) } else { releaseRoom() }
            return waitForTurn(.long, on: worker)
        }
        // Nobody is left to be answered: the others in the queue need not wait for that.
        if stream.isBroken { return .end }
        mayWorkLong = false
        var work = LongWork.none
        swap(&work, &longWork)
        switch work {
        case .none: return nil
        case .request(let deadline):
            return worker.loop.now < deadline ? answerRequest(on: worker, for: driver) : .refusal(.outOfBuffers)
        case .beginning(let answer, let deadline):
            guard worker.loop.now < deadline else { return refuse(answer, on: worker) }
            if let pause = begin(answer, on: worker, for: driver) { return pause }
            // The first pieces of one that came at once belong to the same step.
            if case .pieces(let answer) = longWork { return sendPieces(of: answer, on: worker) }
            return nil
        case .pieces(let answer): return sendPieces(of: answer, on: worker)
        }
    }

    /// Makes and sends the next pieces, as many as one step may.
    private mutating func sendPieces(of answer: consuming LongAnswer, on worker: Worker) -> Pause? {
        var bytes = 0
        while !answer.isComplete && bytes < Self.longStep {
            let before = output.count
            answer.appendPiece(to: &output)
            bytes += output.count - before
            longWork = answer.isComplete ? .none : .pieces(answer)
            if let pause = send(on: worker) { return pause }
        }
        if answer.isComplete { sendDeadline = .never }
        return nil
    }

    /// Waits for a part of a turn; nil if an answer is written instead.
    ///
    /// Any number of connections may wait for their turn: what each holds meanwhile is counted. Where there is no room for it
    /// an answer that has begun can only be cut off; anything else is refused.
    mutating func waitForTurn(_ part: TurnPart, on worker: Worker) -> Pause? {
        if account(for: waitingBytes, on: worker) { return .turn(part) }
        var work = LongWork.none
        swap(&work, &longWork)
        switch work {
        case .none, .request: return .refusal(.outOfBuffers)
        case .beginning(let answer, _): return refuse(answer, on: worker)
        case .pieces: return .end
        }
    }

    /// Refuses a pending answer that was not begun; nil if an answer that says so is written.
    private mutating func refuse(_ answer: PendingAnswer, on worker: Worker) -> Pause? {
        // The contract's answer to a failed read, as the request's head is no longer there for another one.
        guard hasLeftRequest else { return .refusal(.outOfBuffers) }
        write(answer.refuse(), on: worker)
        return nil
    }

    func longWorkDeadline(on worker: Worker) -> MonotonicTime {
        worker.loop.now + settings.deadlines.send
    }
}
