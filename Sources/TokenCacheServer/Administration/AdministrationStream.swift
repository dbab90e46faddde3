internal import EventLoop
internal import HTTP

/// A connection of those who run the server: whole requests in, whole answers out.
///
/// Unhurried where `Connection` is fast. Belongs to its loop's thread.
struct AdministrationStream: ~Copyable {
    private var stream: TCPStream
    private let loop: EventLoop
    private let connection: AdministrationConnections.Connection
    private var reader: RequestReader

    /// For the next request, and for some of an answer to be taken.
    private static let patience = Nanoseconds(.seconds(30))

    /// A request and what was asked of the connection.
    struct Received {
        let method: String
        let path: String
        let body: [UInt8]
        /// Whether the client waits for no further answer.
        let isLast: Bool
        /// Whether a page in a browser has sent it: those name their origin in what is no GET (Fetch, section 3.2).
        let isFromPage: Bool
    }

    enum Event {
        case request(Received)
        /// What was sent cannot be answered otherwise, nor read on.
        case refused(Refusal)
        /// There is nobody to be answered any more.
        case over
    }

    /// - Parameters:
    ///   - connection: Its socket, which this owns.
    ///   - loop: The loop of the calling task.
    ///   - limits: How much a request may hold.
    /// - Returns: Nil when the client has gone already.
    init?(_ connection: AdministrationConnections.Connection, on loop: EventLoop, limits: RequestLimits) {
        do throws(SystemError) {
            stream = try TCPStream(FileDescriptor(owning: connection.descriptor), on: loop)
        } catch {
            return nil
        }
        self.loop = loop
        self.connection = connection
        reader = RequestReader(limits: limits)
    }

    /// Waits for the next request, also while the loop drains: until it is abandoned.
    mutating func receive() async -> Event {
        let deadline = loop.now + Self.patience
        connection.expectRequest()
        while true {
            // It shares its loop with others, and may have much at hand: no request of it is under way meanwhile.
            await connection.waiting(for: .restOfRequest) { await Task.yield() }
            switch reader.next() {
            case .request:
                defer { reader.finishRequest() }
                return .request(received)
            case .refused(let refusal): return .refused(refusal)
            case .sendContinue:
                guard await send(ResponseEncoder.continueResponse) else { return .over }
            case .needsMore(let part):
                let wait: AdministrationConnections.Wait = if case .start = part { .firstByte } else { .restOfRequest }
                let room = reader.makeRoom()
                switch try? stream.receive(into: &reader.bytes, room: room) {
                case .received: break
                case .wouldBlock:
                    let reason = await connection.waiting(for: wait) {
                        await stream.waitUntilReadable(until: deadline, isIdle: false)
                    }
                    guard reason == .ready else { return .over }
                case .endOfInput, nil: return .over
                }
            }
        }
    }

    private var received: Received {
        let (request, bytes) = (reader.request, reader.requestBytes)
        let head = bytes.text(ByteRange(0, request.head.length)).lowercased()
        return Received(
            method: bytes.text(request.head.methodName), path: bytes.text(request.head.path),
            body: [UInt8](request.body, in: bytes), isLast: !request.head.keepsAlive,
            isFromPage: head.contains("\r\norigin:")
        )
    }

    /// Sends all of it; false when the client does not take it.
    mutating func send(_ bytes: [UInt8]) async -> Bool {
        var sent = 0
        while sent < bytes.count {
            guard let count = try? stream.send(bytes.span.extracting(sent...)) else { return false }
            sent += count
            if count == 0 {
                let reason = await connection.waiting(for: .takingOfAnswer) {
                    await stream.waitUntilWritable(until: loop.now + Self.patience)
                }
                guard reason == .ready else { return false }
            }
        }
        return true
    }

    /// Tells the client that nothing more will come.
    func finishSending() {
        stream.finishSending()
    }
}
