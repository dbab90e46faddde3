internal import EventLoop

/// Sends the service manager watchdog messages as long as every loop runs (sd_watchdog_enabled(3)).
///
/// Before each message, every loop has to complete a turn. When a loop hangs, no message is sent, and the manager restarts
/// the server.
struct Watchdog: Sendable {
    let loops: [EventLoop]
    /// The time without a message after which the manager restarts the server.
    let interval: Duration
    let notify: @Sendable () -> Void

    /// How often per interval to check the loops that have not completed a turn yet.
    private static let checksPerInterval = 40

    /// Runs until its task is cancelled.
    func run() async {
        while !Task.isCancelled {
            let turns = loops.map(\.turnCount)
            // The empty job wakes an idle loop. A busy loop completes turns anyway, and any of these counts.
            for loop in loops { loop.execute {} }
            while !Task.isCancelled, zip(loops, turns).contains(where: { $0.turnCount == $1 }) {
                try? await Task.sleep(for: interval / Self.checksPerInterval)
            }
            guard !Task.isCancelled else { return }
            notify()
            // sd_watchdog_enabled(3) recommends half of the interval, so that a late message does no harm.
            try? await Task.sleep(for: interval / 2)
        }
    }
}
