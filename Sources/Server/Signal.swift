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

    /// Catches signals for the rest of the process's life; their default action would end it.
    ///
    /// - Returns: The signals that arrive, at the latest from the return on. Several of one kind that arrive at the same
    ///   time can appear as one.
    static func caught(_ signals: Signal...) async -> AsyncStream<Signal> {
        let (stream, continuation) = AsyncStream.makeStream(of: Signal.self)
        for signal in signals { await signal.catch { continuation.yield(signal) } }
        return stream
    }

    private func `catch`(_ action: @escaping @Sendable () -> Void) async {
        // Once the source is active, only the queue's handlers use it, one after the other. The handler keeps the source
        // alive, which would otherwise be released at the end of this function.
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
