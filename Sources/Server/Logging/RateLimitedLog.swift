internal import HTTP
internal import Logging
internal import Synchronization

/// Logs an error that can occur with every request: the first at once, then at most one line in ten seconds, with the number
/// of errors that were not logged in between.
///
/// Any thread.
final class RateLimitedLog: Sendable {
    private struct Recent {
        var lastLine: ContinuousClock.Instant?
        var unlogged = 0
    }

    private let logger: Logger
    private let level: Logger.Level
    private let recent = Mutex(Recent())
    private static let interval = Duration.seconds(10)

    init(_ logger: Logger, _ level: Logger.Level) {
        self.logger = logger
        self.level = level
    }

    /// - Parameter requestID: The id of the request in which the error occurred.
    func log(_ text: @autoclosure () -> String, requestID: RequestID = .none) {
        let now = ContinuousClock.now
        let unlogged: Int? = recent.withLock { recent in
            if let last = recent.lastLine, now - last < Self.interval {
                recent.unlogged += 1
                return nil
            }
            defer { recent = Recent(lastLine: now) }
            return recent.unlogged
        }
        guard let unlogged else { return }
        let count = unlogged == 0 ? "" : " (and \(unlogged) times more since the last such line)"
        var fields: Logger.Metadata = [:]
        if let id = requestID.text { fields["request_id"] = "\(id)" }
        logger.log(level: level, "\(text())\(count)", metadata: fields)
    }
}
