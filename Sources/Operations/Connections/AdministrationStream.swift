import EventLoop
import FoundationEssentials
import Glibc
import HTTP
import System

/// Receives complete requests and sends complete answers on a connection of the administration.
///
/// Written for simplicity, unlike the clients' `Connection`, which is written for speed. Belongs to its loop's thread.
struct AdministrationStream: ~Copyable {
    private var stream: TCPStream
    private let loop: EventLoop
    private let connection: AdministrationConnections.Connection
    private var reader: RequestReader
    private var hasRequest = false
    /// How long to wait for the next request, and for the client to read more of an answer.
    private static let timeout = Nanoseconds(.seconds(30))
    /// How many bytes are sent before other tasks of the loop get a turn.
    private static let piece = 256 << 10

    /// A received request, without its body.
    struct Received {
        let method: String
        let path: String
        /// What follows the question mark; empty without one.
        let query: String
        /// With or without a port; empty when the request names no host.
        let host: String
        /// Whether the connection closes after the answer.
        let isLast: Bool
        /// Whether a page of any site has sent it.
        ///
        /// Browsers send the origin with all methods but GET and HEAD (Fetch, section 3.2), and current ones send with every
        /// request whether it comes from the same site (Fetch Metadata, section 2.3).
        let isFromPage: Bool
    }

    enum Event {
        case request(Received)
        /// The input is not a valid request: send the refusal and close.
        case refused(Refusal)
        /// The connection has ended, timed out or been evicted: there is nothing to answer.
        case closed
    }

    /// - Parameters:
    ///   - connection: The connection; this value takes over its socket.
    ///   - loop: The calling task's loop.
    ///   - limits: The size limits of requests.
    /// - Returns: Nil if the client has already closed the connection.
    init?(
        _ connection: AdministrationConnections.Connection, on loop: EventLoop, limits: RequestLimits
    ) {
        do throws(SystemError) {
            stream = try TCPStream(FileDescriptor(owning: connection.descriptor), on: loop)
        } catch {
            return nil
        }
        self.loop = loop
        self.connection = connection
        reader = RequestReader(limits: limits)
    }

    /// Waits for the next request, even while the loop drains, until the loop is abandoned.
    mutating func receive() async -> Event {
        let deadline = loop.now + Self.timeout
        if hasRequest { reader.finishRequest() }
        hasRequest = false
        connection.expectRequest()
        while true {
            // Other connections share the loop, and much input may be buffered here. As no request is under way, the connection
            // may be evicted meanwhile.
            await connection.waiting(for: .restOfRequest) { await Task.yield() }
            guard !connection.isEvicted else { return .closed }
            switch reader.next() {
            case .request:
                hasRequest = true
                return .request(received)
            case .refused(let refusal): return .refused(refusal)
            case .sendContinue:
                guard await send(ResponseEncoder.continueResponse) else { return .closed }
            case .needsMore(let part):
                let wait: AdministrationConnections.Wait = if case .start = part { .firstByte } else { .restOfRequest }
                let room = reader.makeRoom()
                switch try? stream.receive(into: &reader.bytes, room: room) {
                case .received: break
                case .wouldBlock:
                    let reason = await connection.waiting(for: wait) {
                        await stream.waitUntilReadable(until: deadline, [])
                    }
                    guard reason == .ready else { return .closed }
                case .endOfInput, nil: return .closed
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

    private var received: Received {
        let (head, bytes) = (reader.request.head, reader.requestBytes)
        let sites = head.values(of: .fetchSite, in: bytes)
        return Received(
            method: bytes.text(head.methodName), path: bytes.text(head.path), query: bytes.text(head.query),
            host: bytes.text(head.authority),
            isLast: !head.keepsAlive,
            isFromPage: sites.contains { RequestHead.isOtherSite($0, in: bytes) }
                || !head.values(of: .origin, in: bytes).isEmpty
        )
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
                let reason = await connection.waiting(for: .sending) {
                    await stream.waitUntilWritable(until: loop.now + Self.timeout)
                }
                guard reason == .ready else { return false }
            }
        }
        return true
    }

    /// Closes the sending direction, so that the client sees the end of the answer.
    func finishSending() {
        stream.finishSending()
    }
}

/// An HTTP answer of the administration.
struct AdministrationAnswer: Sendable {
    var status = Status.ok
    var mediaType = "application/json"
    var body: [UInt8]
    /// Further header lines, such as `Allow: POST`.
    var fields: [String] = []

    /// An answer with a value as JSON, followed by a newline.
    init(_ status: Status = .ok, json value: some Encodable) {
        self.status = status
        body = ((try? OperationsJSON.encode(value)).map(Array.init) ?? []) + [UInt8(ascii: "\n")]
    }

    init(mediaType: String, text: String) {
        self.mediaType = mediaType
        body = Array(text.utf8)
    }

    /// An error, as `{"error": "..."}`.
    static func error(_ status: Status, _ message: String) -> AdministrationAnswer {
        AdministrationAnswer(status, json: ["error": message])
    }

    /// The bytes to send, with the current date.
    ///
    /// - Parameters:
    ///   - omitsBody: True for HEAD.
    ///   - closes: Whether the connection is closed afterwards (RFC 9112, section 9.6).
    func encoded(omitsBody: Bool = false, closes: Bool) -> [UInt8] {
        let date = HTTPDate.text(unixTime: Int64(time(nil)))
        var lines = [
            "HTTP/1.1 \(status.rawValue) \(status.reason)", "Content-Type: \(mediaType)", "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff", "Date: \(String(decoding: date, as: UTF8.self))",
            "Content-Length: \(body.count)",
        ]
        lines += fields
        if closes { lines.append("Connection: close") }
        return Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + (omitsBody ? [] : body)
    }
}
