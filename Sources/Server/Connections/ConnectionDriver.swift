import EventLoop
import HTTP
import Metrics
import System
import TokenService

/// Owns a connection and calls it whenever one of its waits ends.
///
/// Between two requests only the loop's table refers to the driver: there is no task, and it takes hardly more memory than the
/// connection itself. When nothing refers to it any more, it is freed and the connection closed.
///
/// Belongs to its loop's thread, and is freed there.
final class ConnectionDriver: ReadinessHandler, AnswerTaker, @unchecked Sendable {
    // Unchecked: only code that runs on the loop refers to it.

    private var connection: Connection
    private let context: LoopContext

    init(_ connection: consuming Connection, isRefused: Bool, on context: LoopContext) {
        self.connection = connection
        (self.connection.isExpendable, self.connection.isRefused) = (!isRefused, isRefused)
        self.context = context
    }

    deinit {
        context.bufferBudget.giveBack(connection.countedBytes)
        context.noteEnd(isRefused: connection.isRefused)
    }

    /// Serves the connection from its first byte to its last.
    ///
    /// - Parameter listener: The listener that accepted the connection.
    func start(through listener: ClientListener) {
        guard listener.requiresProxyProtocol || listener.tls != nil else { return start() }
        Task(executorPreference: context.loop) { [self] in
            await connection.open(through: listener, on: context)
            start()
        }
    }

    private func start() {
        if connection.isRefused, case .answering = connection.state {
            connection.refuse(.tooManyConnections, on: context)
        }
        connection.run(on: context, for: self)
    }

    func wake(_ reason: WakeReason) {
        connection.wake(after: reason, on: context, for: self)
    }

    func resume() {
        connection.resume(on: context, for: self)
    }

    func take(_ answer: Answer) {
        connection.take(answer, on: context, for: self)
    }
}

/// Opening a connection: PROXY protocol header and TLS handshake.
extension Connection {
    /// Reads what precedes requests; afterwards the connection is answering, or it is closing or closed if that fails.
    fileprivate mutating func open(through listener: ClientListener, on context: LoopContext) async {
        if listener.requiresProxyProtocol, !(await readProxyHeader(of: listener, on: context)) {
            state = .closed
        } else if let tls = listener.tls {
            await startTLS(tls, clients: listener.clientAuthentication, on: context)
        }
    }

    /// Reads the PROXY protocol header that the connection must begin with, and takes the client's address from it.
    ///
    /// Reads no byte beyond the header, as a TLS handshake may follow.
    ///
    /// - Returns: False if there is no valid header, or if the peer is not a trusted proxy.
    private mutating func readProxyHeader(of listener: ClientListener, on context: LoopContext) async -> Bool {
        let deadline = context.loop.now + settings.headTime
        while peer.isTrusted {
            var seen: [UInt8] = []
            switch try? stream.peek(into: &seen, room: ProxyProtocol.longest) {
            case .received, .wouldBlock: break
            case .endOfInput, nil: return false
            }
            switch ProxyProtocol.read(seen) {
            case .header(let length, let client, let isTLS):
                seen.removeAll()
                guard case .received(length) = try? stream.receive(into: &seen, room: length) else { return false }
                // Without an address the connection stays the proxy's, which then has not written what comes through it.
                peer = settings.https.peer(
                    address: client ?? peer.address, isTLS: isTLS ?? listener.isBehindTLS, hidesClient: client == nil)
                return true
            case .needsMore:
                // Peeking leaves the bytes on the socket, so the end of input behind them shows only as `hasEnded`.
                guard !stream.hasEnded, await stream.waitForMore(until: deadline) == .ready else { return false }
            case .malformed:
                context.noteClosed("it did not begin with a PROXY protocol header")
                return false
            }
        }
        context.noteClosed("its peer must send a PROXY protocol header, but is not a trusted proxy")
        return false
    }

    /// Performs the TLS handshake; a client that can still be answered after a failure receives a refusal or an alert.
    private mutating func startTLS(
        _ tls: WatchedCertificates, clients: TLSClientAuthentication, on context: LoopContext
    ) async {
        do {
            let deadline = context.loop.now + settings.headTime
            try await stream.startTLS(tls, clients: clients, until: deadline, among: context.handshakes)
            context.metrics.handshakes.add()
            peer.isTLS = true
            certificate = stream.clientCertificate
        } catch {
            context.noteClosed("\(error)")
            context.metrics.handshakeFailures.add(error.cause)
            switch error.cause {
            case .plainRequest: refuse(.plainRequest, on: context)
            // Sends the alert that tells the client why.
            case .refused: state = .closing(lingers: true)
            case .closed, .timedOut, .displaced, .stopped, .system: state = .closed
            }
        }
    }
}
