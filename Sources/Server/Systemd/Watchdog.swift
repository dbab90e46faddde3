internal import EventLoop

/// Gives the service manager a sign of life for as long as every loop does its work (sd_watchdog_enabled(3)).
///
/// Before each sign every loop is asked for a turn, all of them at once. A loop that hangs keeps the sign from being given, and
/// the manager restarts the server.
struct Watchdog: Sendable {
    let loops: [EventLoop]
    /// The time after which the manager gives the server up.
    let interval: Duration
    let giveSign: @Sendable () -> Void

    /// Between two looks at loops that have yet to make a turn, as a part of the interval.
    private static let looksPerInterval = 40

    /// Runs until its task is cancelled.
    func run() async {
        while !Task.isCancelled {
            let turns = loops.map(\.turnCount)
            // This wakes a loop at rest. One at work makes turns anyway, and any of them will do, even before this job.
            for loop in loops { loop.execute {} }
            while !Task.isCancelled, zip(loops, turns).contains(where: { $0.turnCount == $1 }) {
                try? await Task.sleep(for: interval / Self.looksPerInterval)
            }
            guard !Task.isCancelled else { return }
            giveSign()
            // Half of the time, as sd_watchdog_enabled(3) recommends: a sign may come late without harm.
            try? await Task.sleep(for: interval / 2)
        }
    }
}
