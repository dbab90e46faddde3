import EventLoop
import HTTP
import System
import TokenService

/// Answers that come later.
extension Connection {
    /// Drops the request and begins its pending answer, in the part of a turn that is for long work if it takes long.
    mutating func begin(
        _ answer: PendingAnswer, since: MonotonicTime?, on context: LoopContext, for driver: ConnectionDriver
    ) {
        // Answers to earlier requests need not wait for this one.
        if !output.isEmpty, !sendNow(on: context), case .closed = state { return }
        guard let since = dropRequest(for: answer, since: since, on: context) else {
            return answer.takesLong
                ? end(with: Response(.outOfBuffers), on: context)
                : write(answer.failForLackOfRoom(), since: since, on: context)
        }
        if answer.takesLong {
            // An answer before this one may have waited for the store; only the time in the queue is limited.
            state = .longAnswer(answer, since: context.loop.now)
        } else {
            beginNow(answer, since, on: context, for: driver)
        }
    }

    /// Begins a pending answer, and waits for it if it does not come at once.
    private mutating func beginNow(
        _ answer: PendingAnswer, _ since: MonotonicTime, on context: LoopContext, for driver: ConnectionDriver
    ) {
        if let answer = answer.begin(for: driver) {
            give(answer, since: since, on: context, for: driver)
            return yieldToOthers()
        }
        state = .waiting(answer, since: since)
        _ = wait(for: answer, since, on: context, for: driver)
    }

    /// Waits for a pending answer, and meanwhile for the client to read what is left of earlier ones.
    private mutating func wait(
        for answer: PendingAnswer, _ since: MonotonicTime, on context: LoopContext, for driver: ConnectionDriver
    ) -> Bool {
        let deadline = answer.timeLimit.map { context.loop.now + Nanoseconds($0) } ?? .never
        guard let reason = stream.waitUntilLost(orWritable: !output.isEmpty, until: deadline, calling: driver) else {
            return false
        }
        return endWait(for: answer, since, after: reason, on: context, for: driver)
    }

    /// Ends the wait for an answer that has not come.
    ///
    /// - Parameter reason: Why the loop has ended the wait.
    mutating func endWait(
        for answer: PendingAnswer, _ since: MonotonicTime, after reason: WakeReason, on context: LoopContext,
        for driver: ConnectionDriver
    ) -> Bool {
        switch reason {
        case .ready:
            if !stream.isBroken {
                _ = sendNow(on: context)
                if case .waiting = state { return wait(for: answer, since, on: context, for: driver) }
            }
            // The client has disconnected. The read or write that was begun still runs to its end.
            answer.abandon()
            return close()
        case .timedOut, .draining, .displaced, .abandoned:
            // A store without a time limit always answers, so this wait continues even if the loop has ended all waits.
            guard answer.timeLimit != nil else { return false }
            write(answer.timeOut(), since: since, on: context)
            yieldToOthers()
            return true
        }
    }

    /// Lets other connections be served next: a store delivers many answers at a time, and all of them are written before a
    /// connection continues with further requests of its client.
    mutating func yieldToOthers() {
        // Without further input the queue is not needed: it waits anyway, or what it receives next is the last step.
        steps = reader.hasFurtherBytes ? Self.stepLimit : Self.stepLimit - 1
    }

    /// Drops the current request, which the pending answer does not need, and counts the memory that is held until the answer
    /// comes.
    ///
    /// - Returns: When it was dropped; nil if `limits.buffers` leaves no room for that memory, and nothing is dropped.
    private mutating func dropRequest(
        for answer: PendingAnswer, since: MonotonicTime?, on context: LoopContext
    ) -> MonotonicTime? {
        let isLarge = reader.bytes.capacity > 2 * BufferPool.bufferSize
        // The buffers go back to the pool at once, unless they hold further requests, unsent answers or a large body, which is
        // dropped below.
        let keepsBuffers = isLarge || reader.hasFurtherBytes || !output.isEmpty
        let bytes = answer.bytes + (keepsBuffers ? waitingBytes : 0)
        // An answer that holds nothing needs no room.
        guard account(for: bytes, on: context) || answer.bytes == 0 else { return nil }
        if since == nil { reader.finishRequest() }
        releaseBuffers(to: context)
        if isLarge { reader.releaseRoom() }
        // This is never more than was counted above.
        _ = account(for: answer.bytes + waitingBytes, on: context)
        return since ?? context.loop.now
    }
}

/// Long work: what takes milliseconds is done one step per turn, after the work of short requests.
extension Connection {
    /// Bytes of a long answer that are made in one step.
    private static let longStep = 256 << 10

    /// The rest of a long answer.
    final class LongRest {
        fileprivate var answer: LongAnswer
        /// Whether the connection closes after it.
        fileprivate let isLast: Bool

        fileprivate init(of answer: consuming LongAnswer, isLast: Bool) {
            self.answer = answer
            self.isLast = isLast
        }

        /// Bytes of memory that it holds.
        var bytes: Int { answer.capacity }
    }

    /// Writes the head of a long answer, whose rest follows in pieces.
    mutating func writeHead(of answer: consuming LongAnswer, since: MonotonicTime?, on context: LoopContext) {
        write(
            Response(body: [], laterBytes: answer.length, version: answer.version), since: since, on: context)
        // Bytes behind the answer to a HEAD would be taken for the next answer.
        if request.omitsBody { return }
        let isLast = if case .closing = state { true } else { false }
        state = .sending(LongRest(of: answer, isLast: isLast))
    }

    /// Queues for a step of long work.
    mutating func queueLongWork(on context: LoopContext, for driver: ConnectionDriver) -> Bool {
        if context.loop.isAbandoned {
            state = .closing(lingers: !output.isEmpty)
            return true
        }
        // Answers to earlier requests need not wait for this one.
        guard send(on: context, for: driver) else { return false }
        let isSending = if case .sending = state { true } else { false }
        if !isSending || context.bufferBudget.isScarce { releaseRoom() }
        // Any number of connections may be in the queue, so the memory that each holds is counted.
        guard account(for: waitingBytes, on: context) else { return giveUp(on: context) }
        context.loop.enqueue(driver, for: .long)
        return false
    }

    /// Ends long work for which there is no room, or which has waited for too long.
    private mutating func giveUp(on context: LoopContext) -> Bool {
        switch state {
        case .longRequest: refuse(.outOfBuffers, on: context)
        case .longAnswer: end(with: Response(.outOfBuffers), on: context)
        // An answer that has begun is cut off.
        default: return close()
        }
        return true
    }

    /// Does one step of long work, if there is any.
    mutating func workLong(on context: LoopContext, for driver: ConnectionDriver) -> Bool {
        switch state {
        case .longRequest(let since), .longAnswer(_, let since):
            guard context.loop.now < since + settings.bodyTime else { return giveUp(on: context) }
        case .sending: break
        case .reading, .answering, .waiting, .closing, .lingering, .closed: return true
        }
        if context.loop.isAbandoned { return true }
        // The connection is lost, so the others in the queue need not wait for its work.
        if stream.isBroken { return close() }
        switch state {
        case .longRequest: answerRequest(on: context, for: driver)
        case .longAnswer(let answer, _):
            state = .answering
            // The time in the queue is not counted among that of the answer.
            beginNow(answer, context.loop.now, on: context, for: driver)
        default: break
        }
        // If the answer came at once, its first pieces belong to the same step.
        guard case .sending(let rest) = state else { return true }
        return send(rest, on: context, for: driver)
    }

    /// Makes and sends as many pieces as fit into one step.
    private mutating func send(_ rest: LongRest, on context: LoopContext, for driver: ConnectionDriver) -> Bool {
        var bytes = 0
        while bytes < Self.longStep {
            let before = output.count
            rest.answer.appendPiece(to: &output)
            bytes += output.count - before
            if rest.answer.isComplete {
                // While the pieces were sent, the client may have sent bytes that are never read, such as a stray line end.
                // Closing at once would then reset the connection and cut the answer off.
                state = rest.isLast ? .closing(lingers: true) : .answering
            }
            guard send(on: context, for: driver) else { return false }
            if rest.answer.isComplete { break }
        }
        return true
    }
}
