internal import EventLoop
internal import HTTP
internal import Metrics
internal import System
internal import TokenService

/// Owns a connection and calls it whenever one of its waits ends.
///
/// Between two requests only the loop's table refers to the driver: there is no task, and it takes hardly more memory than the
/// connection itself.
///
/// Belongs to its loop's thread, and is freed there.
final class ConnectionDriver: ReadinessHandler, AnswerTaker, @unchecked Sendable {
    // Unchecked: only code that runs on the loop refers to it.

    private var connection: Connection
    private let worker: Worker
    /// The part of a turn for which the driver is queued.
    private var queuedPart = TurnPart.usual

    init(_ connection: consuming Connection, on worker: Worker) {
        self.connection = connection
        self.worker = worker
    }

    deinit {
        worker.bufferBudget.giveBack(connection.countedBytes)
        worker.noteEnd()
    }

    /// Serves the connection from its first byte to its last.
    ///
    /// - Parameters:
    ///   - listener: The listener that accepted the connection.
    ///   - isRefused: Whether the connection exceeds the limit, and is to be answered with 503 and closed.
    func start(through listener: ClientListener, isRefused: Bool) {
        guard listener.requiresProxyProtocol || listener.tls != nil || isRefused else { return proceed(after: nil) }
        perform { [self] in
            if listener.requiresProxyProtocol, !(await connection.readProxyHeader(on: worker)) { return }
            if let tls = listener.tls {
                let clients = listener.clientAuthentication
                guard await connection.startTLS(tls, clients: clients, on: worker) else { return }
            }
            if isRefused { return await connection.refuse(.tooManyConnections, on: worker) }
            proceed(after: nil)
        }
    }

    func wake(_ reason: WakeReason) {
        proceed(after: reason)
    }

    func takeTurn() {
        proceed(after: nil, in: queuedPart)
    }

    func take(_ answer: Answer) {
        act(on: connection.proceed(with: answer, on: worker, for: self))
    }

    private func proceed(after reason: WakeReason?, in part: TurnPart = .usual) {
        act(on: connection.proceed(after: reason, in: part, on: worker, for: self))
    }

    private func act(on pause: Connection.Pause) {
        switch pause {
        // While it waits, the loop or the pending answer refers to the driver. Otherwise nothing does, and it is freed.
        case .input, .answer, .end: break
        case .output: perform { [self] in if await connection.flush(on: worker) { proceed(after: nil) } }
        case .turn(let part):
            queuedPart = part
            worker.loop.enqueue(self, for: part)
        case .refusal(let refusal): perform { [self] in await connection.refuse(refusal, on: worker) }
        case .finish: perform { [self] in await connection.finish(on: worker) }
        }
    }

    /// Runs async work on the loop, after the jobs that are already queued.
    private func perform(_ work: @escaping @Sendable () async -> Void) {
        Task(executorPreference: worker.loop, operation: work)
    }
}
