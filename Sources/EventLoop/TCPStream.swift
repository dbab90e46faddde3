internal import Glibc
package import System

/// A connected TCP socket on its loop: bytes in, bytes out, never blocking the thread; in clear or, once started, over TLS.
///
/// Belongs to the loop's thread. Closed when it goes.
package struct TCPStream: ~Copyable {
    private let descriptor: FileDescriptor
    private let loop: EventLoop
    private let id: RegistrationID
    private var tls: TLSSession?

    /// What a read came to.
    package enum ReceiveResult: Equatable {
        /// This many bytes, at least one, were appended.
        case received(Int)
        /// Nothing is there yet: wait until the stream is readable.
        case wouldBlock
        /// The peer has closed its sending side and everything before that was read.
        case endOfInput
    }

    /// Takes over a connected socket that does not block.
    package init(_ descriptor: consuming FileDescriptor, on loop: EventLoop) throws(SystemError) {
        // Answers are written whole: waiting for more to send would only add a delayed ACK's 40 ms.
        do throws(SystemError) {
            try descriptor.setOption(Int32(IPPROTO_TCP), TCP_NODELAY, "TCP_NODELAY")
        } catch {
            // A Unix socket waits for nothing.
            guard error.code == EOPNOTSUPP else { throw error }
        }
        id = try loop.register(descriptor.number)
        self.descriptor = descriptor
        self.loop = loop
    }

    /// False when the last read showed that nothing is there: reading makes sense again after a wait.
    package var mayBeReadable: Bool {
        guard let tls else { return loop.isReady(.readable, of: id) }
        return tls.hasPending || loop.isReady(tls.readingNeeds, of: id)
    }

    /// Appends what has arrived to a buffer's end.
    ///
    /// - Parameter room: The most that is read, at least 1.
    package func receive(into buffer: inout [UInt8], room: Int) throws(SystemError) -> ReceiveResult {
        if let tls { return try tls.receive(into: &buffer, room: room) }
        var result = 0
        buffer.append(addingCapacity: room) { span in
            result = unsafe span.withUnsafeMutableBufferPointer { bytes, initialized in
                let target = bytes.baseAddress
                let count = retryingInterrupts { unsafe recv(descriptor.number, target, room, 0) }
                initialized = max(0, count)
                return count >= 0 ? count : -Int(errno)
            }
        }
        if result > 0 {
            if result < room { loop.markDrained(id) }
            return .received(result)
        }
        if result == 0 { return .endOfInput }
        guard result == -Int(EAGAIN) else { throw SystemError(call: "recv", code: Int32(-result)) }
        loop.markBlocked(.readable, of: id)
        return .wouldBlock
    }

    /// Appends what has arrived to a buffer's end and leaves it on the socket as well; before TLS only.
    package func peek(into buffer: inout [UInt8], room: Int) throws(SystemError) -> ReceiveResult {
        var result = 0
        buffer.append(addingCapacity: room) { span in
            result = unsafe span.withUnsafeMutableBufferPointer { bytes, initialized in
                let target = bytes.baseAddress
                let count = retryingInterrupts { unsafe recv(descriptor.number, target, room, Int32(MSG_PEEK)) }
                initialized = max(0, count)
                return count >= 0 ? count : -Int(errno)
            }
        }
        if result > 0 { return .received(result) }
        if result == 0 { return .endOfInput }
        guard result == -Int(EAGAIN) else { throw SystemError(call: "recv", code: Int32(-result)) }
        return .wouldBlock
    }

    /// Sends from the front of the bytes and returns how many were taken: 0 means to wait until writable.
    ///
    /// What follows 0 has to begin with the same bytes: with TLS they may be encrypted already.
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

    /// Whether the peer is known to send no more than what is on the socket.
    package var hasEnded: Bool { loop.isReady(.endOfInput, of: id) }

    /// Whether the connection is known to be lost, so that nothing can be sent any more.
    package var isBroken: Bool { loop.isReady(.hangUp, of: id) }

    /// Suspends until there is more than the last `peek` has seen, or the end of input.
    package func waitForMore(until deadline: MonotonicTime) async -> WakeReason {
        // What has been looked at is no news; what comes from now on is reported by the next wait for events.
        loop.markBlocked(.readable, of: id)
        return await loop.wait(for: .readable, of: id, until: deadline, isIdle: true)
    }

    /// Suspends until reading may succeed.
    ///
    /// - Parameter isIdle: `EventLoop.endIdleWaits` ends the wait.
    package func waitUntilReadable(until deadline: MonotonicTime, isIdle: Bool) async -> WakeReason {
        if let tls, tls.hasPending { return .ready }
        return await loop.wait(for: tls?.readingNeeds ?? .readable, of: id, until: deadline, isIdle: isIdle)
    }

    /// Has a handler called when reading may succeed; returns what there is no need to wait for, and then it is not called.
    package func waitUntilReadable(
        until deadline: MonotonicTime, isIdle: Bool, calling handler: any ReadinessHandler
    ) -> WakeReason? {
        if let tls, tls.hasPending { return .ready }
        let needs = tls?.readingNeeds ?? .readable
        return loop.wait(for: needs, of: id, until: deadline, isIdle: isIdle, calling: handler)
    }

    /// Has a handler called when the connection is lost; returns what there is no need to wait for, and then it is not called.
    package func waitUntilLost(until deadline: MonotonicTime, calling handler: any ReadinessHandler) -> WakeReason? {
        loop.wait(for: .hangUp, of: id, until: deadline, isIdle: false, calling: handler)
    }

    /// Ends the wait of a handler, which is then not called.
    package func endWait() {
        loop.endWait(of: id)
    }

    /// Suspends until writing may succeed.
    package func waitUntilWritable(until deadline: MonotonicTime) async -> WakeReason {
        await loop.wait(for: tls?.writingNeeds ?? .writable, of: id, until: deadline, isIdle: false)
    }

    /// Tells the peer that nothing more will come, while its own bytes can still be read.
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

    /// Shakes hands as the server; from then on everything goes over TLS.
    ///
    /// What stands before it on the stream, such as a PROXY header, has to be read to its last byte and not beyond.
    ///
    /// After an error the stream is still one in clear: good for a readable answer to a `plainRequest`, and for
    /// `finishSending` and reading on for a moment so that the alert, which has been sent, is not lost to a reset.
    ///
    /// - Parameters:
    ///   - context: Its certificates as of now.
    ///   - deadline: For the whole handshake. Other connections of the loop go on while it waits.
    package mutating func startTLS(_ context: TLSContext, until deadline: MonotonicTime) async throws(TLSError) {
        try await receiveHello(until: deadline)
        guard let session = TLSSession(context.credentials, on: loop, id) else {
            throw .system(SystemError(call: "SSL_new", code: ENOMEM))
        }
        while true {
            switch session.handshake() {
            case .done:
                tls = session
                return
            case .needs(let direction): try await wait(for: direction, until: deadline, isIdle: false)
            case .failed(let error): throw error
            }
        }
    }

    /// Waits for the client's first byte and looks at it without taking it off the socket.
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
            // Who has not begun yet loses nothing.
            try await wait(for: .readable, until: deadline, isIdle: true)
        }
    }

    private func wait(
        for direction: Readiness, until deadline: MonotonicTime, isIdle: Bool
    ) async throws(TLSError) {
        switch await loop.wait(for: direction, of: id, until: deadline, isIdle: isIdle) {
        case .ready: return
        case .timedOut: throw .timedOut
        case .draining, .abandoned: throw .stopped
        }
    }
}
