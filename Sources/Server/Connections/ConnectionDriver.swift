internal import EventLoop
internal import HTTP
internal import Metrics
internal import System
internal import TokenService

/// Has a connection go on whenever there is something for it to do, and owns it until it is over.
///
/// Between requests nobody holds it but the loop's table: there is no task, and its memory is that of the connection.
///
/// Belongs to its loop's thread, where it also has to end.
final class ConnectionDriver: ReadinessHandler, AnswerTaker, @unchecked Sendable {
    // Unchecked: only what runs on the loop has it.

    private var connection: Connection
    private let worker: Worker
    /// Where in the loop's turn it is queued.
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
    ///   - listener: Where the client came in.
    ///   - isRefused: One connection too many: it is told so and closed.
    func start(through listener: ClientListener, isRefused: Bool) {
        guard listener.requiresProxyProtocol || listener.tls != nil || isRefused else { return proceed(after: nil) }
        perform { [self] in
            if listener.requiresProxyProtocol, !(await connection.readProxyHeader(on: worker)) { return }
            if let tls = listener.tls, !(await connection.startTLS(tls, on: worker)) { return }
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
        // In a wait its loop holds the driver, or the pending answer does; otherwise this is its end.
        case .input, .answer, .end: break
        case .output: perform { [self] in if await connection.flush(on: worker) { proceed(after: nil) } }
        case .turn(let part):
            queuedPart = part
            worker.loop.enqueue(self, for: part)
        case .refusal(let refusal): perform { [self] in await connection.refuse(refusal, on: worker) }
        case .finish: perform { [self] in await connection.finish(on: worker) }
        }
    }

    /// Does something that may wait, after those whose turn it is.
    private func perform(_ work: @escaping @Sendable () async -> Void) {
        Task(executorPreference: worker.loop, operation: work)
    }
}
