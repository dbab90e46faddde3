internal import EventLoop
internal import HTTP
internal import System

extension Connection {
    /// Bytes that a client has to take of an answer to have its time for the rest begin anew: one that takes a byte now and
    /// then does not hold the answer for hours.
    private static let renewal = 256 << 10

    /// Sends what has been gathered: nil when the socket has taken all of it, `output` when the rest has to
    /// wait.
    mutating func send(on worker: Worker) -> Pause? {
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else {
                dropOutput()
                return .end
            }
            if count == 0 {
                // The client reads slowly: closing without waiting for it could cut the answer off.
                lingers = true
                if reader.bytes.capacity > 2 * BufferPool.bufferSize { reader.releaseRoom() }
                // Now, not when the wait begins: until then other connections may have written as much.
                if account(for: waitingBytes, on: worker) { return .output }
                dropOutput()
                return .end
            }
            sent += count
            sentSinceRenewal += count
        }
        // A large answer takes as long as several short ones.
        if sent > Self.outputLimit {
            stepsInTurn += sent / Self.outputLimit
            worker.loop.noteLongStep()
        }
        output.removeAll(keepingCapacity: true)
        sent = 0
        return nil
    }

    /// A client that did not read this will not read more.
    private mutating func dropOutput() {
        output.removeAll(keepingCapacity: true)
        sent = 0
        lingers = false
        longWork = .none
    }

    /// Sends what is left after a pause for output; false when the client does not take it, and then nothing more is sent.
    mutating func flush(on worker: Worker) async -> Bool {
        // A long answer comes here again and again, and has one time for all of that.
        if sendDeadline == .never { renewSendDeadline(on: worker) }
        while true {
            if sentSinceRenewal >= Self.renewal { renewSendDeadline(on: worker) }
            guard await stream.waitUntilWritable(until: sendDeadline) == .ready else {
                dropOutput()
                return false
            }
            switch send(on: worker) {
            case nil:
                if !longWork.isPending { sendDeadline = .never }
                return true
            case .output: break
            default: return false
            }
        }
    }

    private mutating func renewSendDeadline(on worker: Worker) {
        sendDeadline = worker.loop.now + settings.deadlines.send
        sentSinceRenewal = 0
    }
}
