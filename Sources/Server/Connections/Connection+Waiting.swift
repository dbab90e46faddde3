internal import EventLoop
internal import HTTP
internal import Metrics
internal import System
internal import TokenService

/// Waiting for a pending answer.
extension Connection {
    /// Begins a pending answer, and waits for it unless it comes at once.
    mutating func begin(_ answer: PendingAnswer, on worker: Worker, for driver: ConnectionDriver) -> Pause? {
        // The answers to earlier requests need not wait with it. What the socket does not take goes out with this one's.
        if !output.isEmpty, case .end? = send(on: worker) { return .end }
        guard leaveRequest(for: answer, on: worker) else {
            write(answer.refuse(), on: worker)
            return nil
        }
        waitBegan = worker.loop.now
        if let answer = answer.begin(for: driver) {
            if case .post = summary.method { worker.metrics.postTime.add(0) }
            if let pause = handle(answer, on: worker, for: driver) { return pause }
            letOthersGoOn()
            return nil
        }
        pending = answer
        let deadline = answer.timeLimit.map { worker.loop.now + Nanoseconds($0) } ?? .never
        guard let reason = stream.waitUntilLost(until: deadline, calling: driver) else { return .answer }
        return endWait(after: reason, on: worker)
    }

    /// Goes on with the answer that was waited for.
    mutating func proceed(with answer: consuming Answer, on worker: Worker, for driver: ConnectionDriver) -> Pause {
        stream.endWait()
        pending = nil
        worker.metrics.noteWait(worker.loop.now - waitBegan, of: summary.method)
        if let pause = handle(answer, on: worker, for: driver) { return pause }
        letOthersGoOn()
        return proceed(after: nil, in: .usual, on: worker, for: driver)
    }

    /// Ends the wait for something else than the answer; nil if an answer is written instead.
    mutating func endWait(after reason: WakeReason, on worker: Worker) -> Pause? {
        guard let answer = pending else { preconditionFailure("a wait for an answer has one") }
        switch reason {
        case .ready:
            // The client has left. What was begun goes on to its end.
            answer.abandon()
            pending = nil
            return .end
        case .timedOut, .draining, .abandoned:
            // A store without a time limit is about to answer, also when the loop gives up all other waits.
            guard answer.timeLimit != nil else { return .answer }
            pending = nil
            write(answer.timeOut(), on: worker)
            letOthersGoOn()
            return nil
        }
    }

    /// Ends the connection's turn: a store gives many answers at a time, and each connection goes on with what else its client
    /// has sent after the others have written theirs.
    private mutating func letOthersGoOn() {
        // Where nothing more has been received there is no need for a turn, but receiving ends this one.
        stepsInTurn = reader.hasFurtherBytes ? Self.stepLimit : Self.stepLimit - 1
    }

    /// Drops the request at hand, which the pending answer does not need, and counts the memory that is held until the answer
    /// comes.
    ///
    /// - Returns: False when `limits.buffers` leaves no room for it; then nothing is dropped.
    private mutating func leaveRequest(for answer: PendingAnswer, on worker: Worker) -> Bool {
        let isLarge = reader.bytes.capacity > 2 * BufferPool.bufferSize
        // Further requests and answers stay where they are, and so does a large body until it is dropped below. Otherwise the
        // buffers go back at once.
        let keepsBuffers = isLarge || reader.hasFurtherBytes || !output.isEmpty
        guard account(for: answer.bytes + (keepsBuffers ? waitingBytes : 0), on: worker) else { return false }
        if !hasLeftRequest {
            if settings.accessLog != nil { pendingEntry = logEntry() }
            reader.finishRequest()
            hasLeftRequest = true
        }
        releaseBuffers(to: worker)
        if isLarge { reader.releaseRoom() }
        // Never more than was counted above.
        _ = account(for: answer.bytes + waitingBytes, on: worker)
        return true
    }
}
