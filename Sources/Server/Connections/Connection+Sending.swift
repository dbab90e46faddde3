internal import EventLoop
internal import HTTP
internal import System

extension Connection {
    /// Bytes that a client has to read before its time limit for the rest begins again: a client that reads a byte now and then
    /// cannot keep an answer waiting for hours.
    private static let renewal = 256 << 10

    /// Sends the gathered output.
    ///
    /// - Returns: Nil if the socket has taken all of the output, `.output` if the rest has to wait for the client, `.end` if
    ///   the connection is lost or `limits.buffers` leaves no room for the rest.
    mutating func send(on worker: Worker) -> Pause? {
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else {
                dropOutput()
                return .end
            }
            if count == 0 {
                // The client reads slowly. Closing without waiting for it could cut the answer off.
                lingers = true
                if reader.bytes.capacity > 2 * BufferPool.bufferSize { reader.releaseRoom() }
                // Counted now, not when the wait begins: until then other connections may have written as much.
                if account(for: waitingBytes, on: worker) { return .output }
                dropOutput()
                return .end
            }
            sent += count
            sentSinceRenewal += count
        }
        // A large answer takes as long as several short answers.
        if sent > Self.outputLimit {
            stepsInTurn += sent / Self.outputLimit
            worker.loop.noteLongStep()
        }
        output.removeAll(keepingCapacity: true)
        sent = 0
        return nil
    }

    /// Drops the unsent output and all further work: a client that did not read this will not read more.
    private mutating func dropOutput() {
        output.removeAll(keepingCapacity: true)
        sent = 0
        lingers = false
        longWork = .none
    }

    /// Sends the rest of the output, which the socket did not take at once.
    ///
    /// - Returns: False if the client does not read it; then nothing more is sent.
    mutating func flush(on worker: Worker) async -> Bool {
        // A long answer gets here many times, with one time limit for all of them.
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
