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
