internal import EventLoop
internal import Logging
internal import System

extension Server {
    private static let threadInterval = Nanoseconds(.seconds(1))

    /// Starts threads that could not be started when they were needed; on the administration's loop, whose timers need no thread.
    func startWaitingThreads() async {
        var notices = ThreadNotices()
        while !administrationLoop.isAbandoned {
            await administrationLoop.sleep(until: administrationLoop.now + Self.threadInterval)
            guard let attempt = NamedThread.startWaiting(), let line = notices.line(for: attempt, at: .now) else {
                continue
            }
            logger.log(level: line.level, "\(line.text)")
        }
    }
}
