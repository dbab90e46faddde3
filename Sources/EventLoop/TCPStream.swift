internal import Glibc

/// A connected TCP socket on its loop: bytes in, bytes out, never blocking the thread.
///
/// Belongs to the loop's thread. Closed when it goes.
package struct TCPStream: ~Copyable {
    private let descriptor: FileDescriptor
    private let loop: EventLoop
    private let id: RegistrationID

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
    package var mayBeReadable: Bool { loop.isReady(.readable, of: id) }

    /// Appends what has arrived to a buffer's end.
    ///
    /// - Parameter room: The most that is read, at least 1.
    package func receive(into buffer: inout [UInt8], room: Int) throws(SystemError) -> ReceiveResult {
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

    /// Sends from the front of the bytes and returns how many the kernel took: 0 means to wait until writable.
    package func send(_ bytes: Span<UInt8>) throws(SystemError) -> Int {
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

    /// Suspends until reading may succeed.
    ///
    /// - Parameter isIdle: Draining ends the wait.
    package func waitUntilReadable(until deadline: MonotonicTime, isIdle: Bool) async -> WakeReason {
        await loop.wait(for: .readable, of: id, until: deadline, isIdle: isIdle)
    }

    /// Suspends until writing may succeed.
    package func waitUntilWritable(until deadline: MonotonicTime) async -> WakeReason {
        await loop.wait(for: .writable, of: id, until: deadline, isIdle: false)
    }

    /// Tells the peer that nothing more will come, while its own bytes can still be read.
    package func finishSending() {
        _ = shutdown(descriptor.number, Int32(SHUT_WR))
    }

    deinit {
        loop.deregister(id)
    }
}
