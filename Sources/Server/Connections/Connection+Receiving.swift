internal import EventLoop
internal import HTTP
internal import Metrics
internal import System
internal import TokenService

/// Opening a connection: PROXY protocol header and TLS handshake.
extension Connection {
    /// Reads the PROXY protocol header that the connection must begin with, and takes the client's address from it.
    ///
    /// Reads no byte beyond the header, as a TLS handshake may follow.
    ///
    /// - Returns: False if there is no valid header, or if the peer is not a trusted proxy.
    mutating func readProxyHeader(on worker: Worker) async -> Bool {
        let deadline = worker.loop.now + settings.deadlines.head
        while origin.isTrusted {
            var seen: [UInt8] = []
            switch try? stream.peek(into: &seen, room: ProxyProtocol.longest) {
            case .received, .wouldBlock: break
            case .endOfInput, nil: return false
            }
            switch ProxyProtocol.read(seen) {
            case .header(let length, let client):
                seen.removeAll()
                guard case .received(length) = try? stream.receive(into: &seen, room: length) else { return false }
                // Without an address the connection stays the proxy's, which then has not written what comes through it.
                origin = settings.https.origin(
                    address: client ?? origin.address, isTLS: false, hidesClient: client == nil)
                return true
            case .needsMore:
                // Peeking leaves the bytes on the socket, so the end of input behind them shows only as `hasEnded`.
                guard !stream.hasEnded, await stream.waitForMore(until: deadline) == .ready else { return false }
            case .malformed:
                worker.noteClosed("it did not begin with a PROXY protocol header")
                return false
            }
        }
        worker.noteClosed("its peer must send a PROXY protocol header, but is not a trusted proxy")
        return false
    }

    /// Performs the TLS handshake.
    ///
    /// - Returns: False if it failed; a client that can still be answered has then received a refusal or an alert.
    mutating func startTLS(
        _ context: TLSContext, clients: TLSClientAuthentication, on worker: Worker
    ) async -> Bool {
        do throws(TLSError) {
            let deadline = worker.loop.now + settings.deadlines.head
            try await stream.startTLS(context, clients: clients, until: deadline, among: worker.handshakes)
            worker.metrics.handshakes.add()
            origin = settings.https.origin(
                address: origin.address, isTLS: true, hidesClient: origin.hidesClient)
            certificate = stream.clientCertificate.map { ClientCertificate($0, named: settings.certificateName) }
            return true
        } catch {
            worker.noteClosed("\(error)")
            worker.metrics.handshakeFailures.add(error.cause)
            switch error {
            case .plainRequest: await refuse(.plainRequest, on: worker)
            case .refused:
                // Sends the alert that tells the client why.
                lingers = true
                await finish(on: worker)
            case .closed, .timedOut, .displaced, .stopped, .system: break
            }
            return false
        }
    }

    /// Whether the client speaks TLS on a plain HTTP port: it would not understand any answer.
    func isTLSHello(on worker: Worker) -> Bool {
        guard !hasAnswered, reader.beginsLikeTLS else { return false }
        worker.noteClosed("TLS on a plain HTTP port")
        return true
    }
}

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
