internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

/// Sending a connection's last answer and closing it.
extension Connection {
    /// Answers a request that cannot be read further, and closes the connection.
    mutating func refuse(_ refusal: Refusal, on worker: Worker) async {
        if settings.accessLog != nil { answeringBegan = .now }
        let head = reader.partialHead
        summary = RequestSummary(head)
        requestID = Self.requestID(head, in: reader.requestBytes, from: origin, by: settings, on: worker)
        switch settings.https.decision(on: head, in: reader.requestBytes, from: origin) {
        case .served(let isSecure): self.isSecure = isSecure
        case .redirected, .refused: isSecure = false
        }
        encode(settings.router.answer(refusal), closes: true, on: worker)
        lingers = true
        await finish(on: worker)
    }

    /// Sends the last answer and ends the connection.
    ///
    /// Closing with unread input makes the kernel send a reset, which can overtake the answer (RFC 9112, section 9.6). If the
    /// client may still be sending, its input is read and dropped for a moment.
    mutating func finish(on worker: Worker) async {
        let isTaken = await sendAll(on: worker)
        reader.dropAll()
        releaseBuffers(to: worker)
        _ = account(for: waitingBytes, on: worker)
        if isTaken && lingers {
            stream.finishSending()
            await linger(on: worker)
        }
    }

    private mutating func sendAll(on worker: Worker) async -> Bool {
        switch send(on: worker) {
        case nil: true
        case .output: await flush(on: worker)
        default: false
        }
    }

    private mutating func linger(on worker: Worker) async {
        let deadline = worker.loop.now + settings.deadlines.linger
        while worker.loop.now < deadline {
            if reader.bytes.capacity == 0 { takeBuffers(of: worker) }
            reader.bytes.removeAll(keepingCapacity: true)
            switch try? stream.receive(into: &reader.bytes, room: BufferPool.bufferSize) {
            case .received:
                stepsInTurn += 1
                if stepsInTurn.isMultiple(of: Self.stepLimit) { await Task.yield() }
            case .wouldBlock:
                releaseBuffers(to: worker)
                guard await stream.waitUntilReadable(until: deadline, isIdle: false) == .ready else { return }
            case .endOfInput, nil: return
            }
        }
    }
}
