internal import EventLoop
internal import HTTP
internal import System

/// A connection of those who run the server: whole requests in, whole answers out.
///
/// Unhurried where `Connection` is fast. Belongs to its loop's thread.
struct AdministrationStream: ~Copyable {
    private var stream: TCPStream
    private let loop: EventLoop
    private let connection: AdministrationConnections.Connection
    private var reader: RequestReader
    private var hasRequest = false
    /// Where large bodies have to wait for room; nil when there are none.
    private let memory: ControlMemory?
    /// Of the current body, when that is large.
    private var share: ControlMemory.Share?

    /// Bodies up to this many bytes are not counted.
    private static let smallBody = 64 << 10

    /// For the next request, and for some of an answer to be taken.
    private static let timeout = Nanoseconds(.seconds(30))

    /// Bytes that are sent in one go.
    private static let piece = 256 << 10

    /// A request and what was asked of the connection.
    struct Received {
        let method: String
        let path: String
        /// With or without a port; empty when the request names no host.
        let host: String
        /// Whether the client waits for no further answer.
        let isLast: Bool
        /// Whether a page of another site has sent it: browsers tell the origin of what is no GET (Fetch, section 3.2), and
        /// those of today of every request whether it is of the same site (Fetch Metadata, section 2.3).
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
    ///   - memory: What bodies take part of.
    /// - Returns: Nil when the client has gone already.
    init?(
        _ connection: AdministrationConnections.Connection, on loop: EventLoop, limits: RequestLimits,
        memory: ControlMemory? = nil
    ) {
        do throws(SystemError) {
            stream = try TCPStream(FileDescriptor(owning: connection.descriptor), on: loop)
        } catch {
            return nil
        }
        self.loop = loop
        self.connection = connection
        self.memory = memory
        reader = RequestReader(limits: limits)
    }

    /// Waits for the next request, also while the loop drains: until it is abandoned.
    mutating func receive() async -> Event {
        var deadline = loop.now + Self.timeout
        if hasRequest { reader.finishRequest() }
        hasRequest = false
        connection.expectRequest()
        while true {
            // It shares its loop with others, and may have much at hand: no request of it is under way meanwhile.
            await connection.waiting(for: .restOfRequest) { await Task.yield() }
            guard !connection.isGivenUp else { return .over }
            switch reader.next() {
            case .request:
                hasRequest = true
                return .request(received)
            case .refused(let refusal): return .refused(refusal)
            case .sendContinue:
                guard await send(ResponseEncoder.continueResponse) else { return .over }
            case .needsMore(let part):
                if case .body = part, let memory, share == nil, bodySize > Self.smallBody {
                    share = await memory.share(bodySize, on: loop)
                    guard share != nil else { return .over }
                    deadline = loop.now + Self.timeout
                }
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

    /// As announced; otherwise the most that it may have.
    private var bodySize: Int {
        switch reader.partialHead.framing {
        case .none: 0
        case .length(let count): count
        case .chunked: reader.limits.body
        }
    }

    /// Gives away the body of the request at hand, after which nothing more can be received.
    ///
    /// Without a copy: with many megabytes that takes long enough for others to notice.
    mutating func takeBody() -> ArraySlice<UInt8> {
        let start = reader.bytes.count - reader.requestBytes.count
        let body = reader.request.body.indices
        var bytes: [UInt8] = []
        swap(&bytes, &reader.bytes)
        return bytes[(start + body.lowerBound)..<(start + body.upperBound)]
    }

    /// Gives back what was taken of the memory for the body, which is not held any more.
    mutating func giveBackShare() {
        _ = share.take()
    }

    private var received: Received {
        let (request, bytes) = (reader.request, reader.requestBytes)
        let head = request.head
        let sites = head.values(of: .fetchSite, in: bytes)
        return Received(
            method: bytes.text(head.methodName), path: bytes.text(head.path), host: bytes.text(head.authority),
            isLast: !head.keepsAlive,
            isFromPage: sites.contains { RequestHead.isOtherSite($0, in: bytes) }
                || !head.values(of: .origin, in: bytes).isEmpty
        )
    }

    /// Sends all of it; false when the client does not take it.
    mutating func send(_ bytes: [UInt8]) async -> Bool {
        var sent = 0
        while sent < bytes.count {
            // In pieces, so that others have their turn however fast the client takes them.
            if sent > 0 { await Task.yield() }
            let piece = sent..<min(sent + Self.piece, bytes.count)
            guard let count = try? stream.send(bytes.span.extracting(piece)) else { return false }
            sent += count
            if count == 0 {
                let reason = await connection.waiting(for: .takingOfAnswer) {
                    await stream.waitUntilWritable(until: loop.now + Self.timeout)
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
