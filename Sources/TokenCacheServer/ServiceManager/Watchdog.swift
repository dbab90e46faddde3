internal import EventLoop

/// Gives the service manager a sign of life for as long as every loop does its work (sd_watchdog_enabled(3)).
///
/// Before each sign every loop has to run an empty task, behind what already waits for it. A loop that hangs keeps the
/// sign from being given, and the manager restarts the server.
struct Watchdog: Sendable {
    let loops: [EventLoop]
    /// The time after which the manager gives the server up.
    let interval: Duration
    let giveSign: @Sendable () -> Void

    /// Runs until its task is cancelled, and beyond that if a loop does not answer.
    func run() async {
        while !Task.isCancelled {
            for loop in loops { await Task(executorPreference: loop) {}.value }
            giveSign()
            // Half of the time, as sd_watchdog_enabled(3) recommends: a sign may come late without harm.
            try? await Task.sleep(for: interval / 2)
        }
    }
}
