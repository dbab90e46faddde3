internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

extension Connection {
    /// Bytes that a client has to take of an answer to have its time for the rest begin anew: one that takes a byte now and
    /// then does not hold the answer for hours.
    private static let renewal = 256 << 10
    /// Bytes that a row takes in the store's queue beside its token info and its id.
    private static let rowOverhead = 512

    /// Writes the answer to the request at hand and leaves that behind.
    mutating func write(_ response: consuming Response, on worker: Worker) {
        isOver = !asked.keepsAlive || worker.loop.isDraining && !hasFurtherInput(on: worker)
        encode(response, closes: isOver, on: worker)
        if hasLeftRequest { hasLeftRequest = false } else { reader.finishRequest() }
        awaited = nil
        streak += 1
        // Where the client did not ask for the end it may be sending its next request already.
        lingers = asked.keepsAlive || !reader.isEmpty
    }

    /// Writes the answer of the store, and lets others have their turn before it goes on with what else the client has sent.
    ///
    /// Answers of the store come many at a time, and those of writes that it refuses at once, in the middle of `proceed`.
    mutating func writeLater(_ response: consuming Response, on worker: Worker) {
        write(response, on: worker)
        // Where nothing more has been received there is no need for a turn, but receiving ends this one.
        streak = reader.hasFurtherBytes ? Self.streakLimit : Self.streakLimit - 1
    }

    /// Drops the request at hand, whose token is to be stored, and counts the memory that is held until then.
    ///
    /// - Returns: False when `limits.buffers` leaves no room for it; then the request is still at hand.
    mutating func leaveRequest(toStore tokenInfo: [UInt8], under id: [UInt8], on worker: Worker) -> Bool {
        let row = tokenInfo.count + id.count + Self.rowOverhead
        let isLarge = reader.bytes.capacity > 2 * BufferPool.bufferSize
        // Further requests and answers stay where they are, and so does a large body while the row is made of it.
        // Otherwise the buffers go back at once.
        let keepsBuffers = isLarge || reader.hasFurtherBytes || !output.isEmpty
        guard account(for: row + (keepsBuffers ? waitingBytes : 0), on: worker) else { return false }
        if rules.accessLog != nil { pendingEntry = logEntry() }
        reader.finishRequest()
        hasLeftRequest = true
        releaseBuffers(to: worker)
        if isLarge { reader.releaseRoom() }
        // Never more than was counted above.
        _ = account(for: row + waitingBytes, on: worker)
        return true
    }

    /// Whether more than the request at hand has been received, be it by the kernel: while draining that is answered.
    private mutating func hasFurtherInput(on worker: Worker) -> Bool {
        if reader.hasFurtherBytes { return true }
        if case .received = receiveNow(on: worker) { return true }
        return false
    }

    mutating func writeContinue(on worker: Worker) {
        if output.capacity == 0 { takeBuffers(of: worker) }
        output.append(contentsOf: ResponseEncoder.continueResponse)
    }

    mutating func encode(_ response: consuming Response, closes: Bool, on worker: Worker) {
        if output.capacity == 0 { takeBuffers(of: worker) }
        hasAnswered = true
        let traits = ResponseEncoder.Traits(
            omitsBody: asked.omitsBody, closes: closes, isOldVersion: asked.isOldVersion, isSecure: isSecure
        )
        worker.encode(response, traits, requestID: requestID, into: &output)
        worker.metrics.note(response, to: asked.method)
        if rules.accessLog != nil { log(response) }
    }

    // MARK: - Sending

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
            sentInTime += count
        }
        // A large answer takes as long as several short ones.
        if sent > Self.outputLimit {
            streak += sent / Self.outputLimit
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
            if sentInTime >= Self.renewal { renewSendDeadline(on: worker) }
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
        sendDeadline = worker.loop.now + rules.deadlines.send
        sentInTime = 0
    }

    // MARK: - Logging

    private mutating func log(_ response: borrowing Response) {
        var entry = pendingEntry.take() ?? logEntry()
        entry.status = response.status.rawValue
        entry.bytes = asked.omitsBody ? 0 : response.body.count + response.laterBytes
        entry.microseconds = (MonotonicTime.now - started).count / 1_000
        entry.unixTime = Worker.unixTime
        rules.accessLog?.write(entry)
    }

    /// What the access log says of the request at hand, without its answer.
    private func logEntry() -> AccessLog.Entry {
        let (head, bytes) = (reader.partialHead, reader.requestBytes)
        let isKnown = rules.service.isKnown(head.path, of: head.method, in: bytes)
        return AccessLog.Entry(
            client: rules.https.client(of: head, in: bytes, from: origin)?.description ?? "unix",
            method: bytes.text(head.methodName),
            path: isKnown ? bytes.text(head.path) : nil,
            minorVersion: head.minorVersion,
            requestID: requestID.text
        )
    }
}
