internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

extension Connection {
    /// Answers the current request, or begins to wait for its answer.
    mutating func answerRequest(on worker: Worker, for driver: ConnectionDriver) -> Pause? {
        handle(readRequest(on: worker), on: worker, for: driver)
    }

    /// Writes an answer to the current request, or begins to wait for it.
    mutating func handle(_ answer: consuming Answer, on worker: Worker, for driver: ConnectionDriver) -> Pause? {
        switch consume answer {
        case .now(let response):
            write(response, on: worker)
            return nil
        case .inPieces(let answer):
            write(Response(body: [], laterBytes: answer.length, version: answer.version), on: worker)
            // Bytes behind the answer to a HEAD would be taken for the next answer.
            if summary.omitsBody { return nil }
            // While the pieces are sent, the client may send bytes that are never read, such as a stray line end. Closing at
            // once would then reset the connection and cut the answer off.
            lingers = true
            longWork = .pieces(answer)
            return nil
        case .later(let answer):
            guard answer.takesLong else { return begin(answer, on: worker, for: driver) }
            longWork = .beginning(answer, until: longWorkDeadline(on: worker))
            return nil
        }
    }

    private mutating func readRequest(on worker: Worker) -> Answer {
        if settings.accessLog != nil { answeringBegan = .now }
        let answer: Answer
        (answer, summary, requestID, isSecure) = Self.answer(
            to: reader, from: origin, certificate, by: settings, on: worker)
        return answer
    }

    private static func answer(
        to reader: borrowing RequestReader, from origin: HTTPSPolicy.Origin, _ certificate: ClientCertificate?,
        by settings: ConnectionSettings, on worker: Worker
    ) -> (Answer, RequestSummary, RequestID, isSecure: Bool) {
        let (request, bytes) = (reader.request, reader.requestBytes)
        let summary = RequestSummary(request.head)
        let requestID = worker.requestID(request.head, in: bytes, from: origin)
        switch settings.https.decision(on: request.head, in: bytes, from: origin) {
        case .served(let isSecure):
            if let service = settings.plainService {
                return (service.answer(to: request, in: bytes, requestID: requestID), summary, requestID, isSecure)
            }
            let source = RequestSource(origin: origin, https: settings.https, certificate: certificate)
            let answer = settings.router.answer(to: request, in: bytes, requestID: requestID, from: source)
            return (answer, summary, requestID, isSecure)
        case .redirected:
            let redirect = settings.https.redirect(request.head, in: bytes) ?? settings.router.answer(.missingHost)
            return (.now(redirect), summary, requestID, false)
        case .refused(let refusal):
            return (.now(settings.router.answer(refusal)), summary, requestID, false)
        }
    }

    // MARK: - Writing

    /// Writes the answer to the current request and drops the request.
    mutating func write(_ response: consuming Response, on worker: Worker) {
        isLastWritten = !summary.keepsAlive || worker.loop.isDraining && !hasFurtherInput(on: worker)
        encode(response, closes: isLastWritten, on: worker)
        if hasDroppedRequest {
            hasDroppedRequest = false
            worker.metrics.noteWait(worker.loop.now - waitBegan, of: summary.method)
        } else {
            reader.finishRequest()
        }
        awaitedPart = nil
        stepsInTurn += 1
        // A client that did not ask to close the connection may already be sending its next request.
        lingers = summary.keepsAlive || !reader.isEmpty
    }

    /// Whether more input has arrived behind the current request, here or in the kernel: while draining it is still answered.
    private mutating func hasFurtherInput(on worker: Worker) -> Bool {
        if reader.hasFurtherBytes { return true }
        guard case .received = receiveNow(on: worker) else { return false }
        return true
    }

    mutating func writeContinue(on worker: Worker) {
        if output.capacity == 0 { takeBuffers(of: worker) }
        output.append(contentsOf: ResponseEncoder.continueResponse)
    }

    mutating func encode(_ response: consuming Response, closes: Bool, on worker: Worker) {
        if output.capacity == 0 { takeBuffers(of: worker) }
        hasAnswered = true
        let traits = ResponseEncoder.Traits(
            omitsBody: summary.omitsBody, closes: closes, isOldVersion: summary.isOldVersion, isSecure: isSecure
        )
        worker.encode(response, traits, requestID: requestID, into: &output)
        worker.metrics.note(response, to: summary.method, through: listener)
        let entry = pendingEntry.take()
        if settings.accessLog != nil { log(response, entry ?? logEntry()) }
    }

    // MARK: - Logging

    private func log(_ response: borrowing Response, _ unanswered: AccessLog.Entry) {
        var entry = unanswered
        entry.status = response.status.rawValue
        entry.errorCode = ErrorCode.number(of: response.status, response.code)
        entry.bytes = summary.omitsBody ? 0 : response.body.count + response.laterBytes
        entry.microseconds = (MonotonicTime.now - answeringBegan).count / 1_000
        entry.unixTime = Worker.unixTime
        settings.accessLog?.write(entry)
    }

    /// The access log's entry for the current request, without its answer.
    func logEntry() -> AccessLog.Entry {
        let (head, bytes) = (reader.partialHead, reader.requestBytes)
        return AccessLog.Entry(
            client: settings.https.client(of: head, in: bytes, from: origin)?.description ?? "unix",
            method: head.method,
            path: settings.router.loggedPath(head, in: bytes),
            minorVersion: head.minorVersion,
            requestID: requestID, listener: Int(listener), tlsVersion: stream.tlsVersion
        )
    }
}
