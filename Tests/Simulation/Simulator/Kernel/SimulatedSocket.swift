import CLinux
import Glibc

/// The server's end of a connection.
///
/// What the client sends is here at once, as the scheduler has chosen the moment; what the server sends waits here until the
/// client reads it.
final class SimulatedSocket: KernelObject {
    let client: SimulatedClient
    private unowned let kernel: Kernel
    private let random: Randomness
    private var incoming: [UInt8] = []
    /// Bytes of `incoming` that the server has read.
    private var taken = 0
    /// The turn in which the first byte arrived that the server has not read.
    private(set) var oldestInput = Int.max
    /// Bytes that the client has not read yet, and the most that there may be.
    private(set) var unread = 0
    private let capacity: Int
    /// The client sends no more.
    private(set) var hasEnd = false
    private(set) var isReset = false
    /// Whether a call has already failed because of the reset.
    private var hasReportedReset = false
    /// When the server ended its side.
    private(set) var finishedAt: UInt64?
    /// When the server closed the connection.
    private(set) var closedAt: UInt64?
    /// The server waits until it can send.
    private var wantsRoom = false

    init(_ number: Int32, _ client: SimulatedClient, _ kernel: Kernel) {
        self.client = client
        self.kernel = kernel
        random = kernel.random
        capacity = client.habits.window
        super.init(number)
        client.socket = self
        // What has arrived before the connection was accepted.
        incoming = client.early.bytes
        if !incoming.isEmpty { oldestInput = kernel.turn }
        hasEnd = client.early.hasEnd
        isReset = client.early.isReset
    }

    private var isWritable: Bool { capacity - unread >= max(1, capacity / 3) }
    var hasUnreadInput: Bool { taken < incoming.count }

    override var readiness: UInt32 {
        var bits: UInt32 = 0
        if hasUnreadInput || hasEnd || isReset { bits |= CLINUX_EPOLLIN }
        if hasEnd || isReset { bits |= CLINUX_EPOLLRDHUP }
        if isWritable || isReset { bits |= CLINUX_EPOLLOUT }
        if isReset || (hasEnd && finishedAt != nil) { bits |= CLINUX_EPOLLHUP }
        if isReset && !hasReportedReset { bits |= CLINUX_EPOLLERR }
        return bits
    }

    // MARK: - The server's calls

    /// - Parameter peeks: Whether the bytes stay unread (MSG_PEEK, recv(2)).
    func receive(_ room: UnsafeMutableRawBufferPointer, peeks: Bool) -> Int {
        kernel.surroundings?.interleave()
        if random.happens(oneIn: 50) { return -Int(EINTR) }
        guard hasUnreadInput else {
            if isReset && !hasReportedReset {
                hasReportedReset = true
                return -Int(ECONNRESET)
            }
            return hasEnd || isReset ? 0 : -Int(EAGAIN)
        }
        let count = min(room.count, incoming.count - taken)
        incoming.withUnsafeBytes { room.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[taken..<taken + count])) }
        if peeks {
            client.note("server peeks", count)
            return count
        }
        taken += count
        if !hasUnreadInput { oldestInput = .max }
        client.checker.serverHasRead(taken)
        client.note("server reads", count)
        return count
    }

    func send(_ bytes: UnsafeRawBufferPointer) -> Int {
        kernel.surroundings?.interleave()
        if random.happens(oneIn: 50) { return -Int(EINTR) }
        if isReset {
            defer { hasReportedReset = true }
            return -Int(hasReportedReset ? EPIPE : ECONNRESET)
        }
        if finishedAt != nil { violation("\(client): the server sends although it has ended its side") }
        // A client that has closed its end answers with a reset, a moment later.
        if client.hasClosed {
            client.note("server sends to a closed connection", bytes.count)
            client.mustReset = true
            return bytes.count
        }
        let room = min(bytes.count, capacity - unread)
        guard room > 0 else {
            wantsRoom = true
            client.checker.isBlocked()
            return -Int(EAGAIN)
        }
        if room < bytes.count { wantsRoom = true }
        let count = random.happens(oneIn: 12) ? 1 + random.below(room) : room
        unread += count
        client.note("server sends", count)
        client.checker.serverSends(UnsafeRawBufferPointer(rebasing: bytes[..<count]))
        return count
    }

    func finishSending() {
        guard finishedAt == nil else { return }
        finishedAt = kernel.clock.now
        client.note("server ends its side")
        kernel.noteChange(of: self)
    }

    override func close() {
        closedAt = kernel.clock.now
        client.note("server closes, unread:", incoming.count - taken)
        client.checker.serverCloses(self)
        // The kernel answers unread input with a reset, and what the client has not read is lost (RFC 9112, section 9.6).
        if hasUnreadInput { unread = 0 }
    }

    // MARK: - The client's side

    var isClosed: Bool { closedAt != nil }

    func arrive(_ bytes: ArraySlice<UInt8>) {
        if isClosed {
            // Answered with a reset, by which the client loses what it has not read.
            client.checker.inputMeetsClosedSocket(self)
            unread = 0
            return
        }
        incoming += bytes
        oldestInput = min(oldestInput, kernel.turn)
        kernel.noteChange(of: self)
    }

    func end() {
        hasEnd = true
        kernel.noteChange(of: self)
    }

    func reset() {
        isReset = true
        unread = 0
        kernel.noteChange(of: self)
    }

    func read(_ count: Int) {
        unread -= count
        guard wantsRoom, isWritable else { return }
        wantsRoom = false
        kernel.noteChange(of: self)
    }
}
