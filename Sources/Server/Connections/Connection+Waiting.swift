internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

/// Waiting for a pending answer.
extension Connection {
    /// Begins a pending answer, and waits for it if it does not come at once.
    mutating func begin(_ answer: PendingAnswer, on worker: Worker, for driver: ConnectionDriver) -> Pause? {
        // Answers to earlier requests need not wait for this one. What the socket does not take is sent with this one.
        if !output.isEmpty, case .end? = send(on: worker) { return .end }
        guard dropRequest(for: answer, on: worker) else {
            write(answer.refuse(), on: worker)
            return nil
        }
        if let answer = answer.begin(for: driver) {
            if let pause = handle(answer, on: worker, for: driver) { return pause }
            endTurn()
            return nil
        }
        pending = answer
        let deadline = answer.timeLimit.map { worker.loop.now + Nanoseconds($0) } ?? .never
        guard let reason = stream.waitUntilLost(until: deadline, calling: driver) else { return .answer }
        return endWait(after: reason, on: worker)
    }

    /// Continues with the answer that the connection was waiting for.
    mutating func proceed(with answer: consuming Answer, on worker: Worker, for driver: ConnectionDriver) -> Pause {
        stream.endWait()
        pending = nil
        if let pause = handle(answer, on: worker, for: driver) { return pause }
        endTurn()
        return proceed(after: nil, in: .usual, on: worker, for: driver)
    }

    /// Ends the wait for an answer that has not come.
    ///
    /// - Parameter reason: Why the loop has ended the wait.
    /// - Returns: Nil if an answer that says so was written instead.
    mutating func endWait(after reason: WakeReason, on worker: Worker) -> Pause? {
        guard let answer = pending else { preconditionFailure("a wait for an answer has one") }
        switch reason {
        case .ready:
            // The client has disconnected. The read or write that was begun still runs to its end.
            answer.abandon()
            pending = nil
            return .end
        case .timedOut, .draining, .abandoned:
            // A store without a time limit always answers, so this wait continues even if the loop has ended all waits.
            guard answer.timeLimit != nil else { return .answer }
            pending = nil
            write(answer.timeOut(), on: worker)
            endTurn()
            return nil
        }
    }

    /// Ends the connection's turn: a store delivers many answers at a time, and all of them are written before a connection
    /// continues with further requests of its client.
    private mutating func endTurn() {
        // Without further input there is no need to wait for a turn, but the next receive ends this one.
        stepsInTurn = reader.hasFurtherBytes ? Self.stepLimit : Self.stepLimit - 1
    }

    /// Drops the current request, which the pending answer does not need, and counts the memory that is held until the answer
    /// comes.
    ///
    /// - Returns: False if `limits.buffers` leaves no room for that memory; then nothing is dropped.
    private mutating func dropRequest(for answer: PendingAnswer, on worker: Worker) -> Bool {
        let isLarge = reader.bytes.capacity > 2 * BufferPool.bufferSize
        // The buffers go back to the pool at once, unless they hold further requests, unsent answers or a large body, which is
        // dropped below.
        let keepsBuffers = isLarge || reader.hasFurtherBytes || !output.isEmpty
        let bytes = answer.bytes + (keepsBuffers ? waitingBytes : 0)
        // An answer that holds nothing needs no room.
        guard account(for: bytes, on: worker) || answer.bytes == 0 else { return false }
        if !hasDroppedRequest {
            if settings.accessLog != nil { pendingEntry = logEntry() }
            reader.finishRequest()
            hasDroppedRequest = true
            waitBegan = worker.loop.now
        }
        releaseBuffers(to: worker)
        if isLarge { reader.releaseRoom() }
        // This is never more than was counted above.
        _ = account(for: answer.bytes + waitingBytes, on: worker)
        return true
    }
}

extension Connection {
    /// Bytes of a long answer that are made in one step.
    private static let longStep = 256 << 10

    /// Work that takes milliseconds, and is done one step per turn after the work of short requests.
    enum LongWork {
        case none
        /// Read the current request, whose body is long. Refused if this has not begun by the deadline.
        case request(until: MonotonicTime)
        /// Begin a pending answer that takes long to begin. Refused if this has not begun by the deadline.
        case beginning(PendingAnswer, until: MonotonicTime)
        /// Send the rest of a long answer.
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

    /// Does one step of long work, or waits for the part of a turn in which that is allowed.
    mutating func workLong(_ mayWorkLong: inout Bool, on worker: Worker, for driver: ConnectionDriver) -> Pause? {
        if worker.loop.isAbandoned {
            longWork = .none
            return output.isEmpty ? .end : .finish
        }
        guard mayWorkLong else {
            // Answers to earlier requests need not wait for this one.
            if let pause = send(on: worker) { return pause }
            if case .pieces = longWork { shrinkBuffers(on: worker) } else { releaseRoom() }
            return waitForTurn(.long, on: worker)
        }
        // The connection is lost, so the others in the queue need not wait for its work.
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
            // If the answer came at once, its first pieces belong to the same step.
            if case .pieces(let answer) = longWork { return sendPieces(of: answer, on: worker) }
            return nil
        case .pieces(let answer): return sendPieces(of: answer, on: worker)
        }
    }

    /// Makes and sends as many pieces as fit into one step.
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

    /// Waits for a part of a later turn.
    ///
    /// Any number of connections may wait for their turn, so the memory that each holds is counted. Without room for it, an
    /// answer that has begun is cut off, and anything else is refused.
    ///
    /// - Returns: Nil if an answer was written instead.
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

    /// Refuses a pending answer that was not begun.
    ///
    /// - Returns: Nil if the refusal was written as an answer.
    private mutating func refuse(_ answer: PendingAnswer, on worker: Worker) -> Pause? {
        // Once the request is dropped only the contract's answer is possible: a refusal needs the request's head.
        guard hasDroppedRequest else { return .refusal(.outOfBuffers) }
        write(answer.refuse(), on: worker)
        return nil
    }

    func longWorkDeadline(on worker: Worker) -> MonotonicTime {
        worker.loop.now + settings.deadlines.body
    }
}
