internal import EventLoop
internal import HTTP
internal import System

extension Connection {
    /// Whether the connection waits for the first byte of a request.
    private var isBetweenRequests: Bool {
        if case .start = awaitedPart { true } else { false }
    }

    /// Sends the gathered output, then receives; nil if input has arrived.
    mutating func receive(
        _ part: RequestReader.Part, on worker: Worker, for driver: ConnectionDriver
    ) -> Pause? {
        if case .head = part, isTLSHello(on: worker) { return .end }
        if let pause = send(on: worker) { return pause }
        startDeadline(of: part, on: worker)
        return waitForInput(on: worker, for: driver)
    }

    /// Receives, or waits for input; nil if input has arrived.
    private mutating func waitForInput(on worker: Worker, for driver: ConnectionDriver) -> Pause? {
        let isIdle = isBetweenRequests
        if isIdle {
            releaseBuffers(to: worker)
        } else {
            // The buffer of a large answer, while a part of the next request has arrived.
            if output.capacity > 2 * BufferPool.bufferSize { output = [] }
            shrinkBuffers(on: worker)
        }
        guard account(for: waitingBytes, on: worker) else { return .refusal(.outOfBuffers) }
        guard let reason = stream.waitUntilReadable(until: deadline, isIdle: isIdle, calling: driver) else {
            return .input
        }
        return receive(after: reason, on: worker, for: driver)
    }

    /// Receives after a wait; nil if input has arrived.
    mutating func receive(
        after reason: WakeReason, on worker: Worker, for driver: ConnectionDriver
    ) -> Pause? {
        switch reason {
        case .ready:
            switch receiveNow(on: worker) {
            case .received:
                // A client that keeps sending must neither hold up other connections nor escape its deadline.
                stepsInTurn += 1
                // Input that arrives between two requests is in time, however late the loop looks at it.
                return worker.loop.now < deadline || isBetweenRequests ? nil : timedOut()
            case .wouldBlock: return waitForInput(on: worker, for: driver)
            // The client has closed the connection, perhaps in the middle of a request, or it is lost.
            case .endOfInput, nil: return .end
            }
        case .timedOut where !isBetweenRequests: return timedOut()
        case .timedOut, .draining:
            // A request that the kernel has already received is answered. After a pause of the whole machine all deadlines may
            // have passed, with more events than the loop takes at once.
            if case .received = receiveNow(on: worker) { return nil }
            return .end
        case .abandoned: return .end
        }
    }

    private func timedOut() -> Pause {
        switch awaitedPart {
        case .start, nil: .end
        case .head: .refusal(.headTimeout)
        case .body: .refusal(.bodyTimeout)
        }
    }

    private mutating func startDeadline(of part: RequestReader.Part, on worker: Worker) {
        switch (part, awaitedPart) {
        case (.start, .start), (.head, .head), (.body, .body): return
        case (.start, _): deadline = worker.loop.now + settings.deadlines.idle
        case (.head, _): deadline = worker.loop.now + settings.deadlines.head
        case (.body, _): deadline = worker.loop.now + settings.deadlines.body
        }
        awaitedPart = part
    }

    /// Whether the client has sent input that will not be read: closing at once would then reset the connection.
    mutating func hasUnreadInput(on worker: Worker) -> Bool {
        guard stream.mayBeReadable, case .received = receiveNow(on: worker) else { return false }
        return true
    }

    /// Reads once into the free room at the buffer's end; nil if the connection is lost.
    mutating func receiveNow(on worker: Worker) -> ReceiveResult? {
        if reader.bytes.capacity == 0 { takeBuffers(of: worker) }
        let room = reader.makeRoom()
        let result = try? stream.receive(into: &reader.bytes, room: room)
        if case .received(let count) = result, count > Self.outputLimit { worker.loop.noteLongStep() }
        return result
    }
}
