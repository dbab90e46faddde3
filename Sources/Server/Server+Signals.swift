package import Audit
import Dispatch
import EventLoop
import Glibc
import Logging
import Settings
import Synchronization
import System

extension Server {
    /// How long the rest of the server may take to end after the connections have been closed.
    private static let abandonTime = Duration.seconds(5)
    /// How long an idle connection stays open while the server drains.
    ///
    /// A busy client may have sent its next request already: the server answers it with `Connection: close`.
    private static let idleTimeWhenDraining = Duration.milliseconds(250)

    /// Reloads at SIGHUP, and at SIGUSR1, with which nginx opens its logs anew; drains at the first other signal, and closes the
    /// remaining connections at the second.
    func handle(_ signal: Signal) {
        let reason = "\(signal) received"
        if [.hangUp, .reopenLogs].contains(signal) {
            // The audit log could be closed before the reload ends.
            if !isStopping { Task { await reload(reason, by: .signal("\(signal)")) } }
        } else if stopSignals.add(1, ordering: .relaxed).newValue == 1 {
            // A drain that has begun before, such as for a store that was lost, goes on unchanged.
            drain(reason, by: .signal("\(signal)"))
        } else {
            abandon("\(reason) again")
        }
    }

    /// Says to probes that the server is not ready, stops accepting connections after `drain_delay`, answers the requests that have
    /// been received, and ends the process; cannot be undone.
    ///
    /// - Parameters:
    ///   - reason: What caused the stop, such as `SIGTERM received`; begins the line in the log.
    ///   - actor: Who it was, for the audit log.
    package func drain(_ reason: String, by actor: AuditEvent.Actor) {
        guard !isDraining.exchange(true, ordering: .relaxed) else { return }
        stopReason.withLock { $0 = reason }
        say(.debug, "\(reason), finishing requests under way")
        // Carried out even if it cannot be recorded.
        audit?.submit([AuditEvent(.drain, .ok, by: actor)], isRetried: true)
        let timeout = settingsInForce.drainTimeout
        // Without its store, the server has nothing to answer.
        let delay = hasLostStore ? .zero : settingsInForce.drainDelay
        notifier.send(.stopping(within: delay + timeout + Self.abandonTime * 2))
        Signal.perform(after: delay) { [loops] in
            for loop in loops { loop.beginDraining() }
        }
        Signal.perform(after: delay + min(timeout, Self.idleTimeWhenDraining)) { [contexts] in
            for context in contexts { context.loop.endIdleWaits() }
        }
        Signal.perform(after: delay + timeout) { [self] in
            if stopSignals.load(ordering: .relaxed) < 2 { abandon("drain_timeout is over") }
        }
    }

    /// Closes the remaining connections, and ends the process soon even if a disk operation hangs, which cannot be cancelled:
    /// the tokens that it writes were not acknowledged.
    private func abandon(_ reason: String) {
        Signal.perform(after: Self.abandonTime) { [self] in
            let reason = stopReason.withLock(\.self)
            say(.critical, "the store does not close, a disk seems to hang; ending without it: \(reason)")
            Signal.perform(after: .milliseconds(500)) { _exit(EXIT_FAILURE) }
        }
        for context in contexts { context.loop.abandon() }
        say(.warning, "\(reason), closing the remaining connections")
    }

    /// Logs without waiting: standard error may be a file on the disk that hangs, and a file always has room.
    private func say(_ level: Logger.Level, _ message: String) {
        Self.messages.async { [logger] in logger.log(level: level, "\(message)") }
    }

    private static let messages = DispatchQueue(label: "messages about the stop")
}

/// A signal that reloads the settings or stops the server.
enum Signal: String, CustomStringConvertible {
    case hangUp = "SIGHUP"
    case reopenLogs = "SIGUSR1"
    case interrupt = "SIGINT"
    case terminate = "SIGTERM"

    var description: String { rawValue }

    private var number: Int32 {
        switch self {
        case .hangUp: SIGHUP
        case .reopenLogs: SIGUSR1
        case .interrupt: SIGINT
        case .terminate: SIGTERM
        }
    }

    /// Runs on a thread of Dispatch's, as files that hang may block all of Swift's.
    private static let queue = DispatchQueue(label: "signals")

    /// Does something later on the queue of the signals, unless the process has ended by then.
    static func perform(after time: Duration, _ action: @escaping @Sendable () -> Void) {
        queue.asyncAfter(deadline: .now() + .nanoseconds(Int(Nanoseconds(time).count)), execute: action)
    }

    /// The number of the signal that has asked for a reload before `handle` was called; 0 if none has.
    private static let early = Atomic<Int32>(0)

    /// Until `handle` is called, lets SIGTERM and SIGINT end the process at once, as a start may wait for a file system, and remembers
    /// SIGHUP or SIGUSR1.
    ///
    /// By default, the latter two would end the process, and the kernel would ignore all four for the first process of a container.
    static func catchBeforeServing() {
        // Initializes the variable, which a signal handler must not do.
        early.store(0, ordering: .relaxed)
        for signal in [SIGTERM, SIGINT] { _ = Glibc.signal(signal) { _ in _exit(EXIT_SUCCESS) } }
        for signal in [SIGHUP, SIGUSR1] {
            _ = Glibc.signal(signal) { number in Signal.early.store(number, ordering: .relaxed) }
        }
    }

    /// Catches signals for the rest of the process's life; their default action would end it.
    ///
    /// - Parameter handle: Called on the queue for each signal that arrives after this function has returned, perhaps before, and
    ///   for one that asked for a reload and was remembered. Several of one kind that arrive at the same time can appear as one.
    static func handle(_ signals: Signal..., by handle: @escaping @Sendable (Signal) -> Void) async {
        for signal in signals { await signal.catch { handle(signal) } }
        let number = early.load(ordering: .relaxed)
        if let kept = signals.first(where: { $0.number == number }) { queue.async { handle(kept) } }
    }

    private func `catch`(_ action: @escaping @Sendable () -> Void) async {
        // Once the source is active, only the queue's handlers use it, one after the other. The handler keeps the source
        // alive, which would otherwise be released at the end of this function.
        nonisolated(unsafe) let source = DispatchSource.makeSignalSource(signal: number, queue: Self.queue)
        unsafe source.setEventHandler { withExtendedLifetime(unsafe source) { action() } }
        await withCheckedContinuation { registered in
            unsafe source.setRegistrationHandler { registered.resume() }
            unsafe source.activate()
        }
    }
}
