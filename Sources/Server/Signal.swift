internal import Dispatch
internal import Glibc
internal import Synchronization

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
    /// How many signals that stop the server have arrived.
    private static let stops = Atomic<Int>(0)
    /// How long an orderly end may take after the second of them.
    private static let lastWait = DispatchTimeInterval.seconds(5)

    /// Has the signals that stop the server end the process at once until `caught` is called, also as the first process of a
    /// container, for which the kernel ignores signals without a handler: a start may wait for a file system.
    static func endBeforeServing() {
        for signal in [SIGTERM, SIGINT] { _ = Glibc.signal(signal) { _ in _exit(EXIT_FAILURE) } }
    }

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
            guard self != .hangUp, Self.stops.add(1, ordering: .relaxed).newValue == 2 else { return }
            // Here, on a thread of Dispatch's own, because files that hang may hold all of Swift's threads.
            Self.queue.asyncAfter(deadline: .now() + Self.lastWait) { _exit(EXIT_FAILURE) }
        }
        await withCheckedContinuation { registered in
            unsafe source.setRegistrationHandler { registered.resume() }
            unsafe source.activate()
        }
    }
}
