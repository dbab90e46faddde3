import EventLoop
import HTTP
import System

/// Serves a connection to `admin.listen` or to the control socket, from its first request to its last.
///
/// Written for simplicity, unlike the clients' `Connection`, which is written for speed. Belongs to its loop's thread.
struct AdministrationConnection: ~Copyable {
    private var stream: TCPStream
    private var reader: RequestReader
    private let place: AdministrationListener.Connection
    let loop: EventLoop
    let endpoints: AdministrationEndpoints

    private static let limits = RequestLimits(head: 8 << 10, body: 8 << 10)
    private static let controlLimits: RequestLimits = {
        var limits = RequestLimits()
        limits.body = ControlSocketAddress.bodyLimit
        return limits
    }()
    /// How long to wait for the next request, and for the client to read more of an answer.
    private static let timeout = Nanoseconds(.seconds(30))
    /// How many bytes are sent before other tasks of the loop get a turn.
    private static let piece = 256 << 10

    /// - Parameters:
    ///   - place: The connection; this call closes its socket.
    ///   - isControl: Whether it is one to the control socket, where one also works on the store and changes something.
    ///   - loop: The calling task's loop.
    ///   - endpoints: Answers the requests.
    static func serve(
        _ place: AdministrationListener.Connection, isControl: Bool, on loop: EventLoop,
        _ endpoints: AdministrationEndpoints
    ) async {
        let requester = isControl ? Requester(connectedTo: place.descriptor) : nil
        // Otherwise, the client has already closed the connection.
        guard let stream = try? TCPStream(FileDescriptor(owning: place.descriptor), on: loop) else { return }
        let reader = RequestReader(limits: isControl ? controlLimits : limits)
        var connection = AdministrationConnection(
            stream: stream, reader: reader, place: place, loop: loop, endpoints: endpoints)
        await connection.serve(requester)
        // The client sees the end of the answer.
        connection.stream.finishSending()
    }

    /// - Parameter requester: The process at the other end of the control socket; nil on `admin.listen`.
    private mutating func serve(_ requester: Requester?) async {
        while let request = await receive() {
            if let requester, request.method == "POST", let type = StoreRequests.type(at: request.path) {
                return await run(type, for: requester)
            }
            // A request to `admin.listen` only reads: a new connection may evict this one while it waits for its answer.
            let answer = await place.waiting(for: .answer) { [endpoints] in
                await endpoints.answer(request, from: requester)
            }
            // Commands send a request for each connection.
            let isLast = request.isLast || requester != nil
            let bytes = answer.encoded(omitsBody: request.method == "HEAD", closes: isLast)
            guard await send(bytes), !isLast else { return }
            reader.finishRequest()
        }
    }

    /// Waits for the next request, even while the loop drains, until the loop is abandoned.
    ///
    /// - Returns: Nil if there is nothing more to answer: the connection has ended, timed out or been evicted, or its input is not a
    ///   valid request, which this call has answered.
    private mutating func receive() async -> AdministrationRequest? {
        let deadline = loop.now + Self.timeout
        place.expectRequest()
        while true {
            // Other connections share the loop, and much input may be buffered here. As no request is under way, the connection
            // may be evicted meanwhile.
            await place.waiting(for: .restOfRequest) { await Task.yield() }
            guard !place.isEvicted else { return nil }
            switch reader.next() {
            case .request: return AdministrationRequest(reader.request.head, in: reader.requestBytes)
            case .refused(let refusal):
                await refuse(refusal.status, refusal.message)
                return nil
            case .sendContinue:
                guard await send(ResponseEncoder.continueResponse) else { return nil }
            case .needsMore(let part):
                let wait: AdministrationListener.Wait = if case .start = part { .firstByte } else { .restOfRequest }
                let room = reader.makeRoom()
                switch try? stream.receive(into: &reader.bytes, room: room) {
                case .received: break
                case .wouldBlock:
                    let reason = await place.waiting(for: wait) { await stream.waitUntilReadable(until: deadline, []) }
                    guard reason == .ready else { return nil }
                case .endOfInput, nil: return nil
                }
            }
        }
    }

    /// Moves the current request's body out; nothing more can be received afterwards.
    ///
    /// Moved rather than copied: a copy of many megabytes would block the loop noticeably.
    mutating func takeBody() -> ArraySlice<UInt8> {
        let start = reader.bytes.count - reader.requestBytes.count
        let body = reader.request.body.indices
        var bytes: [UInt8] = []
        swap(&bytes, &reader.bytes)
        return bytes[(start + body.lowerBound)..<(start + body.upperBound)]
    }

    /// Sends all bytes; returns false if the client does not read them.
    mutating func send(_ bytes: [UInt8]) async -> Bool {
        var sent = 0
        while sent < bytes.count {
            if sent > 0 { await Task.yield() }
            let piece = sent..<min(sent + Self.piece, bytes.count)
            guard let count = try? stream.send(bytes.span.extracting(piece)) else { return false }
            sent += count
            if count == 0 {
                let reason = await place.waiting(for: .sending) {
                    await stream.waitUntilWritable(until: loop.now + Self.timeout)
                }
                guard reason == .ready else { return false }
            }
        }
        return true
    }

    mutating func refuse(_ status: Status, _ message: String) async {
        _ = await send(AdministrationAnswer.error(status, message).encoded(closes: true))
    }
}
