internal import EventLoop
internal import Glibc
internal import Logging
internal import Settings
internal import Synchronization

extension Server {
    /// For everything to end after the connections have been closed.
    private static let abandonTime = Duration.seconds(5)
    /// For a connection without a request to bring one while the server drains.
    ///
    /// A client that asks often has its next request on the way at any moment: it gets an answer, and is told that it was
    /// the last one on that connection.
    private static let idleTimeWhenDraining = Duration.milliseconds(250)

    /// Drains at the first signal, and closes what is still open at the second.
    func stop(by signals: AsyncStream<Signal>) async {
        var count = 0
        for await signal in signals {
            count += 1
            if count == 1 {
                // A drain that was asked for before, such as by the service manager ahead of its signal, goes on as it is.
                drain("\(signal) received")
            } else {
                logger.warning("\(signal) received again, closing what is still open")
                for worker in workers { worker.loop.abandon() }
            }
        }
    }

    /// Stops accepting connections, answers what has been received, and ends the process; cannot be undone.
    ///
    /// - Parameter reason: Who asks; begins the line in the log.
    package func drain(_ reason: String) {
        guard !isDraining.exchange(true, ordering: .relaxed) else { return }
        reasonOfEnd.withLock { $0 = reason }
        logger.debug("\(reason), finishing what is under way")
        let timeout = reloader.settings.drainTimeout
        notifier.send(.stopping(within: timeout + Self.abandonTime * 2), .status("finishing what is under way"))
        for loop in loops { loop.beginDraining() }
        Task { [workers, logger] in
            let idleTime = min(timeout, Self.idleTimeWhenDraining)
            try await Task.sleep(for: idleTime)
            for worker in workers { worker.loop.endIdleWaits() }
            try await Task.sleep(for: timeout - idleTime)
            logger.warning("drain_timeout is over, closing what is still open")
            for worker in workers { worker.loop.abandon() }
            try await Task.sleep(for: Self.abandonTime)
            // A call to the disk that does not return cannot be taken back. What it was to store was not acknowledged.
            logger.critical("the store does not finish, its disk seems to hang; ending without it: \(reason)")
            _exit(EXIT_FAILURE)
        }
    }
}
