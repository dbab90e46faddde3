internal import Dispatch
internal import Glibc

/// A signal that reloads the settings or stops the server.
enum Signal: String, CustomStringConvertible {
    case hangUp = "SIGHUP"
    case interrupt = "SIGINT"
    case terminate = "SIGTERM"

    var description: String { rawValue }

    private var number: Int32 {
        switch self {
        case .hangUp: SIGHUP
        case .interrupt: SIGINT
        case .terminate: SIGTERM
        }
    }

    private static let queue = DispatchQueue(label: "signals")

    /// Catches signals for as long as the process lives; without this they end it.
    ///
    /// - Returns: The signals that arrive, from the moment of the return at the latest. Several of one kind that arrive at
    ///   once can become one.
    static func caught(_ signals: Signal...) async -> AsyncStream<Signal> {
        let (stream, continuation) = AsyncStream.makeStream(of: Signal.self)
        for signal in signals { await signal.catch { continuation.yield(signal) } }
        return stream
    }

    private func `catch`(_ action: @escaping @Sendable () -> Void) async {
        // Only the queue's handlers touch the source once it is active, one after the other. The handler holds the source,
        // which would otherwise be given up at the end of this function.
        nonisolated(unsafe) let source = DispatchSource.makeSignalSource(signal: number, queue: Self.queue)
        unsafe source.setEventHandler {
            withExtendedLifetime(unsafe source) { action() }
        }
        await withCheckedContinuation { registered in
            unsafe source.setRegistrationHandler { registered.resume() }
            unsafe source.activate()
        }
    }
}
