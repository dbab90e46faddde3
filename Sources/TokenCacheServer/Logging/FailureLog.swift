internal import Logging
internal import Synchronization
internal import TokenStore

/// Logs failures of the store: the first at once, then one line in ten seconds with the number of those in between.
///
/// Any thread.
final class FailureLog: Sendable {
    private struct Recent {
        var lastLine: ContinuousClock.Instant?
        var unlogged = 0
    }

    private let logger: Logger
    private let recent = Mutex(Recent())
    private static let interval = Duration.seconds(10)

    init(_ logger: Logger) {
        self.logger = logger
    }

    func note(_ error: StoreError) {
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
        let count = unlogged == 0 ? "" : " (and \(unlogged) more failures since the last such line)"
        logger.error("the store failed, the client was told so: \(error)\(count)")
    }
}
