import Glibc
import System

/// The TLS handshakes of one loop that are under way, and the memory that is counted for them.
///
/// Beyond their share of `limits.buffers` the oldest one ends: an honest handshake takes a few round trips, an attacker's as
/// long as it can. Within their share, requests and answers that wait for their clients make room for them.
///
/// Belongs to the loop's thread.
package final class TLSHandshakes {
    private let budget: BufferBudget
    /// By their numbers, which rise in the order in which they began.
    private var underWay: [Int: TLSHandshake] = [:]
    private var nextNumber = 0
    /// No handshake that is under way has a lower number.
    private var lowestNumber = 0
    private var countedBytes = 0

    package init(_ budget: BufferBudget) {
        self.budget = budget
    }

    fileprivate func add(_ handshake: TLSHandshake) -> Int {
        underWay[nextNumber] = handshake
        nextNumber += 1
        return nextNumber - 1
    }

    fileprivate func remove(_ handshake: TLSHandshake) {
        guard let number = handshake.number else { return }
        underWay[number] = nil
        budget.giveBack(handshake.countedBytes)
        countedBytes -= handshake.countedBytes
    }

    /// Counts what a handshake holds now.
    ///
    /// - Returns: False if there is no room for it although all older ones have ended.
    fileprivate func account(for bytes: Int, of handshake: TLSHandshake) -> Bool {
        let more = bytes - handshake.countedBytes
        // A single handshake may exceed the share.
        while underWay.count > 1 && countedBytes + more > budget.handshakeShare
            || !budget.take(more, displacingOn: handshake.loop)
        {
            guard let oldest, oldest !== handshake else { return false }
            oldest.end(.failure(.displaced))
        }
        handshake.countedBytes = bytes
        countedBytes += more
        return true
    }

    private var oldest: TLSHandshake? {
        while lowestNumber < nextNumber {
            if let handshake = underWay[lowestNumber] { return handshake }
            lowestNumber += 1
        }
        return nil
    }
}

/// A handshake as the server; each of its steps is done in the part of a turn that is for handshakes.
///
/// Belongs to the loop's thread.
final class TLSHandshake: ReadinessHandler {
    fileprivate let loop: EventLoop
    private let id: RegistrationID
    private let deadline: MonotonicTime
    private let all: TLSHandshakes
    /// Makes the session when the first step is due: handshakes that are only queued hold no memory.
    private let makeSession: () -> TLSSession?
    private var session: TLSSession?
    private var waiter: Waiter<Void>?
    private var outcome = Result<TLSSession, TLSError>.failure(.stopped)
    /// Nil before the first step.
    fileprivate private(set) var number: Int?
    fileprivate var countedBytes = 0

    // What OpenSSL 3 holds besides what is being sent and received, rounded up. On a hello's first bytes it allocates the length
    // that the hello claims, up to 128 KiB (TLS 1.3 may have two hellos).
    private static let bytes = 64 << 10
    private static let bytesWhileReadingHello = 192 << 10

    init(
        on loop: EventLoop, _ id: RegistrationID, until deadline: MonotonicTime, among all: TLSHandshakes,
        _ makeSession: @escaping () -> TLSSession?
    ) {
        self.loop = loop
        self.id = id
        self.deadline = deadline
        self.all = all
        self.makeSession = makeSession
    }

    /// Performs the handshake.
    func perform() async throws(TLSError) -> TLSSession {
        await Waiter<Void>.suspend { waiter in
            self.waiter = waiter
            queue(.expendable)
        }
        return try outcome.get()
    }

    /// Queues for a step, and until then waits as well, so that the loop can end it.
    private func queue(_ traits: WaitTraits) {
        if let reason = loop.wait(for: [], of: id, until: deadline, traits, calling: self) { return wake(reason) }
        loop.enqueue(self, for: .handshake)
    }

    func wake(_ reason: WakeReason) {
        switch reason {
        // A client that answers within the handshake most likely completes it, but half a hello may never be followed by the rest.
        case .ready: queue(session?.hasHello == true ? [] : .expendable)
        case .timedOut: end(.failure(.timedOut))
        case .displaced: end(.failure(.displaced))
        case .draining, .abandoned: end(.failure(.stopped))
        }
    }

    func resume() {
        // It may have ended while it was queued.
        guard waiter != nil else { return }
        loop.endWait(of: id)
        if session == nil {
            number = all.add(self)
            guard all.account(for: Self.bytes, of: self) else { return end(.failure(.displaced)) }
            session = makeSession()
        }
        guard let session else { return end(.failure(.system(SystemError(call: "SSL_new", code: ENOMEM)))) }
        switch session.handshake() {
        case .done: end(.success(session))
        case .needs(let direction):
            let bytes = session.isReadingHello ? Self.bytesWhileReadingHello : Self.bytes
            guard all.account(for: bytes, of: self) else { return end(.failure(.displaced)) }
            if let reason = loop.wait(for: direction, of: id, until: deadline, .expendable, calling: self) {
                wake(reason)
            }
        case .failed(let error): end(.failure(error))
        }
    }

    fileprivate func end(_ outcome: Result<TLSSession, TLSError>) {
        loop.endWait(of: id)
        all.remove(self)
        session = nil
        self.outcome = outcome
        waiter.take()?.resume(returning: ())
    }
}

/// Why a handshake failed.
package struct TLSError: Error, Hashable, CustomStringConvertible {
    /// The words are those of the metrics, which do not contain OpenSSL's texts: clients could cause any number of them.
    package enum Cause: String, CaseIterable, Sendable {
        /// The client sent text, most likely a plain HTTP request. None of it was read, and it can be answered in clear.
        case plainRequest = "plain_request"
        /// The client disconnected during the handshake.
        case closed
        /// The handshake did not finish by its deadline.
        case timedOut = "timeout"
        /// Others needed the memory that it held, or its place among the connections.
        case displaced
        /// The loop is draining.
        case stopped
        /// One side did not accept what the other offered.
        case refused
        /// The socket failed.
        case system
    }

    package let cause: Cause
    /// For `refused` the library's short reason, such as `no shared cipher`; for `system` the error.
    private let detail: String

    private init(_ cause: Cause, _ detail: String = "") {
        (self.cause, self.detail) = (cause, detail)
    }

    package static let plainRequest = TLSError(.plainRequest)
    package static let closed = TLSError(.closed)
    package static let timedOut = TLSError(.timedOut)
    package static let displaced = TLSError(.displaced)
    package static let stopped = TLSError(.stopped)

    package static func refused(reason: String) -> TLSError { TLSError(.refused, reason) }
    static func system(_ cause: SystemError) -> TLSError { TLSError(.system, "\(cause)") }

    package var description: String {
        switch cause {
        case .plainRequest: "plain text on a TLS port"
        case .closed: "closed by the client during the TLS handshake"
        case .timedOut: "TLS handshake timed out"
        case .displaced: "TLS handshake given up for newer connections: limits.connections or limits.buffers is reached"
        case .stopped: "TLS handshake given up, the server is stopping"
        case .refused, .system: "TLS handshake failed: \(detail)"
        }
    }
}
