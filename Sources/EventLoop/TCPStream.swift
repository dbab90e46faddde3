package import Cryptography
import Glibc
package import System

/// A connected stream socket on its loop, which never blocks the thread; in clear or, after `startTLS`, over TLS.
///
/// Belongs to the loop's thread. Closes the socket in `deinit`.
package struct TCPStream: ~Copyable {
    private let descriptor: FileDescriptor
    private let loop: EventLoop
    private let id: RegistrationID
    private var tls: TLSSession?

    /// Takes over a connected socket that does not block.
    package init(_ descriptor: consuming FileDescriptor, on loop: EventLoop) throws(SystemError) {
        // Answers are written whole: to wait for more data (Nagle) would only add the 40 ms of a delayed ACK.
        do {
            try descriptor.setOption(Int32(IPPROTO_TCP), TCP_NODELAY, "TCP_NODELAY")
        } catch {
            // Unix sockets have no such option.
            guard error.code == EOPNOTSUPP else { throw error }
        }
        id = try loop.register(descriptor.number)
        self.descriptor = descriptor
        self.loop = loop
    }

    /// False after a read that found the socket empty, until a wait ends.
    package var mayBeReadable: Bool {
        guard let tls else { return loop.isReady(.readable, of: id) }
        return tls.hasPending || loop.isReady(tls.readingNeeds, of: id)
    }

    /// Appends what has arrived to a buffer's end.
    ///
    /// - Parameter room: The most that is read, at least 1.
    package func receive(into buffer: inout [UInt8], room: Int) throws(SystemError) -> ReceiveResult {
        if let tls { return try tls.receive(into: &buffer, room: room) }
        let result = try receive(into: &buffer, room: room, flags: 0)
        if case .received(let count) = result {
            if count < room { loop.markDrained(id) }
        } else if case .wouldBlock = result {
            loop.markBlocked(.readable, of: id)
        }
        return result
    }

    /// How many steps a successful read took: one, and with TLS one for each message beside data, such as a key update.
    package func takeSteps() -> Int { 1 + (tls?.takeMessages() ?? 0) }

    /// Appends what has arrived to a buffer's end, and also leaves it on the socket; only before TLS.
    package func peek(into buffer: inout [UInt8], room: Int) throws(SystemError) -> ReceiveResult {
        try receive(into: &buffer, room: room, flags: Int32(MSG_PEEK))
    }

    @inline(__always)
    private func receive(into buffer: inout [UInt8], room: Int, flags: Int32) throws(SystemError) -> ReceiveResult {
        var result = 0
        buffer.append(addingCapacity: room) { span in
            result = unsafe span.withUnsafeMutableBufferPointer { bytes, initialized in
                let target = bytes.baseAddress
                let count = retryingInterrupts { unsafe recv(descriptor.number, target, room, flags) }
                initialized = max(0, count)
                return count >= 0 ? count : -Int(errno)
            }
        }
        if result > 0 { return .received(result) }
        if result == 0 { return .endOfInput }
        guard result == -Int(EAGAIN) else { throw SystemError(call: "recv", code: Int32(-result)) }
        return .wouldBlock
    }

    /// Sends from the front of the bytes and returns how many the socket took; after 0, wait until it is writable.
    ///
    /// After 0, the next call must begin with the same bytes: with TLS they may be encrypted already.
    package func send(_ bytes: Span<UInt8>) throws(SystemError) -> Int {
        if let tls { return try tls.send(bytes) }
        let sent = unsafe bytes.withUnsafeBufferPointer { bytes in
            retryingInterrupts {
                unsafe Glibc.send(descriptor.number, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
            }
        }
        if sent >= 0 { return sent }
        guard errno == EAGAIN else { throw SystemError.last("send") }
        loop.markBlocked(.writable, of: id)
        return 0
    }

    /// Whether the peer has ended its side: there is no more than what is on the socket.
    package var hasEnded: Bool { loop.isReady(.endOfInput, of: id) }

    /// Whether the connection is lost, so that nothing can be sent.
    package var isBroken: Bool { loop.isReady(.hangUp, of: id) }

    /// Suspends until more arrives than the last `peek` saw, or the input ends.
    package func waitForMore(until deadline: MonotonicTime) async -> WakeReason {
        // Bytes that were peeked at count as read; epoll reports the next ones.
        loop.markBlocked(.readable, of: id)
        return await loop.wait(for: .readable, of: id, until: deadline, [.idle, .expendable])
    }

    /// Suspends until reading may succeed.
    package func waitUntilReadable(until deadline: MonotonicTime, _ traits: WaitTraits) async -> WakeReason {
        if let tls, tls.hasPending { return .ready }
        return await loop.wait(for: tls?.readingNeeds ?? .readable, of: id, until: deadline, traits)
    }

    /// Calls a handler when reading may succeed, unless it returns a reason why there is no wait.
    package func waitUntilReadable(
        until deadline: MonotonicTime, _ traits: WaitTraits, calling handler: any ReadinessHandler
    ) -> WakeReason? {
        if let tls, tls.hasPending { return .ready }
        let needs = tls?.readingNeeds ?? .readable
        return loop.wait(for: needs, of: id, until: deadline, traits, calling: handler)
    }

    /// Calls a handler when the connection is lost, unless it returns a reason why there is no wait.
    ///
    /// - Parameter orWritable: Whether it is also called when writing may succeed.
    package func waitUntilLost(
        orWritable: Bool, until deadline: MonotonicTime, calling handler: any ReadinessHandler
    ) -> WakeReason? {
        let needs = orWritable ? tls?.writingNeeds ?? .writable : []
        return loop.wait(for: needs.union(.hangUp), of: id, until: deadline, [], calling: handler)
    }

    /// Ends the wait of a handler, which is then not called.
    package func endWait() {
        loop.endWait(of: id)
    }

    /// Suspends until writing may succeed.
    package func waitUntilWritable(until deadline: MonotonicTime) async -> WakeReason {
        await loop.wait(for: tls?.writingNeeds ?? .writable, of: id, until: deadline, .unfinished)
    }

    /// Calls a handler when writing may succeed, unless it returns a reason why there is no wait.
    package func waitUntilWritable(until deadline: MonotonicTime, calling handler: any ReadinessHandler) -> WakeReason?
    {
        loop.wait(for: tls?.writingNeeds ?? .writable, of: id, until: deadline, .unfinished, calling: handler)
    }

    /// Ends our side of the connection; the peer's bytes can still be read.
    package func finishSending() {
        tls?.sendCloseNotify()
        _ = shutdown(descriptor.number, Int32(SHUT_WR))
    }

    deinit {
        tls?.sendCloseNotify()
        loop.deregister(id)
    }

    // MARK: - TLS

    /// The protocol that protects the stream, for example `TLSv1.3`; nil in clear.
    package var tlsVersion: String? { tls?.version }

    /// What the client's certificate says; nil if it has shown none or the stream is in clear.
    ///
    /// Each call reads the certificate anew.
    package var clientCertificate: ClientCertificate? { tls?.clientCertificate }

    /// Whether the client would still be let in, by its certificate or without one; costs a few comparisons.
    package func acceptsClient(at unixTime: @autoclosure () -> Int64) -> Bool {
        tls?.acceptsClient(at: unixTime()) ?? true
    }

    /// Performs the handshake as the server; from then on everything goes over TLS.
    ///
    /// What precedes it on the stream, such as a PROXY header, must be read to its last byte and not beyond.
    ///
    /// After an error the stream is still in clear. It can carry a readable answer to a `plainRequest`. After an alert, call
    /// `finishSending` and read for a moment, so that a reset does not overtake the alert.
    ///
    /// - Parameters:
    ///   - certificates: The handshake uses those in use now.
    ///   - clients: Whether the client shows a certificate.
    ///   - deadline: For the whole handshake, during which other connections of the loop continue.
    ///   - handshakes: The loop's handshakes.
    package mutating func startTLS(
        _ certificates: WatchedCertificates, clients: TLSClientAuthentication, until deadline: MonotonicTime,
        among handshakes: TLSHandshakes
    ) async throws(TLSError) {
        try await receiveHello(until: deadline)
        let (loop, id) = (loop, id)
        tls = try await TLSHandshake(on: loop, id, until: deadline, among: handshakes) {
            TLSSession(certificates, clients: clients, on: loop, id)
        }.perform()
    }

    /// Waits for the client's first byte and peeks at it.
    ///
    /// A TLS record begins with a number from 20 to 24 (RFC 8446, section 5.1), a request with a letter.
    private func receiveHello(until deadline: MonotonicTime) async throws(TLSError) {
        while true {
            var first: UInt8 = 0
            let count = retryingInterrupts { unsafe recv(descriptor.number, &first, 1, Int32(MSG_PEEK)) }
            if count > 0 {
                if UInt8(ascii: "A")...UInt8(ascii: "Z") ~= first & 0xDF { throw .plainRequest }
                return
            }
            if count == 0 { throw .closed }
            guard errno == EAGAIN else { throw .system(SystemError.last("recv")) }
            loop.markBlocked(.readable, of: id)
            // A client that has sent nothing yet loses nothing.
            switch await loop.wait(for: .readable, of: id, until: deadline, [.idle, .expendable]) {
            case .ready: break
            case .timedOut: throw .timedOut
            case .displaced: throw .displaced
            case .draining, .abandoned: throw .stopped
            }
        }
    }
}

/// Calls a closure on its loop's thread whenever a descriptor is readable, until the loop is abandoned.
///
/// The descriptor is watched level-triggered: the closure need not read all that there is, as it is called again.
///
/// Belongs to the loop's thread.
package final class DescriptorWatch: ReadinessHandler {
    private let loop: EventLoop
    private let id: RegistrationID
    private let proceed: () -> Void

    /// - Parameters:
    ///   - descriptor: Stays open as long as the loop runs; the caller owns it.
    ///   - loop: The loop of the calling thread.
    ///   - proceed: Called in each turn in which the descriptor is readable; must not wait.
    package init(_ descriptor: Int32, on loop: EventLoop, proceed: @escaping () -> Void) throws(SystemError) {
        self.loop = loop
        self.proceed = proceed
        id = try loop.registerLevelTriggered(descriptor)
        wait()
    }

    package func wake(_ reason: WakeReason) {
        guard case .ready = reason else { return }
        proceed()
        wait()
    }

    package func resume() {}

    private func wait() {
        // The next event says whether there is more.
        loop.markBlocked(.readable, of: id)
        _ = loop.wait(for: .readable, of: id, until: .never, [], calling: self)
    }
}
