package import Audit
internal import EventLoop
internal import Glibc
internal import Logging
internal import Settings
internal import Synchronization

extension Server {
    /// How long the rest of the server may take to end after the connections have been closed.
    private static let abandonTime = Duration.seconds(5)
    /// How long an idle connection stays open while the server drains.
    ///
    /// A busy client may have sent its next request already: the server answers it with `Connection: close`.
    private static let idleTimeWhenDraining = Duration.milliseconds(250)

    /// Drains at the first signal, and closes the remaining connections at the second.
    func stop(by signals: AsyncStream<Signal>) async {
        var count = 0
        for await signal in signals {
            count += 1
            if count == 1 {
                // A drain that has begun before, such as through ExecStop= ahead of the signal, goes on unchanged.
                drain("\(signal) received", by: .signal("\(signal)"))
            } else {
                logger.warning("\(signal) received again, closing the remaining connections")
                for worker in workers { worker.loop.abandon() }
            }
        }
    }

    /// Stops accepting connections, answers the requests that have been received, and ends the process; cannot be undone.
    ///
    /// - Parameters:
    ///   - reason: What caused the stop, such as `SIGTERM received`; begins the line in the log.
    ///   - actor: Who it was, for the audit log.
    package func drain(_ reason: String, by actor: AuditEvent.Actor) {
        guard !isDraining.exchange(true, ordering: .relaxed) else { return }
        stopReason.withLock { $0 = reason }
        logger.debug("\(reason), finishing requests under way")
        // Not waited for: the server ends even if the audit log's disk hangs.
        drainRecord.withLock { $0 = record(.drain, .ok, by: actor) }
        let timeout = reloader.settings.drainTimeout
        notifier.send(.stopping(within: timeout + Self.abandonTime * 2), .status("finishing requests under way"))
        for loop in loops { loop.beginDraining() }
        Task { [workers, logger] in
            let idleTime = min(timeout, Self.idleTimeWhenDraining)
            try await Task.sleep(for: idleTime)
            for worker in workers { worker.loop.endIdleWaits() }
            try await Task.sleep(for: timeout - idleTime)
            logger.warning("drain_timeout is over, closing the remaining connections")
            for worker in workers { worker.loop.abandon() }
            try await Task.sleep(for: Self.abandonTime)
            // A disk operation that does not return cannot be cancelled. Its tokens were not acknowledged.
            logger.critical("the store does not close, its disk seems to hang; ending without it: \(reason)")
            _exit(EXIT_FAILURE)
        }
    }
}
