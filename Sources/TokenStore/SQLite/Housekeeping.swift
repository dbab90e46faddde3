/// Decides what the writer does when it has nothing to commit, and when it has to do it all the same.
///
/// The log is moved into the database a second after the last commit, or when it has grown to 4 MiB and nobody waits, or
/// when it has grown to 16 MiB whoever waits: the first keeps replaced values from staying in it, the second and third keep
/// it, and the time that moving takes, small. It is cut to nothing each time.
///
/// Only a table of times: it takes the time and returns what to do.
struct Housekeeping {
    enum Step {
        case lookAfterFiles
        case checkpoint
        case expire
        case releasePages
    }

    static let comfortableLog = 4 << 20
    static let largestLog = 16 << 20
    /// After the last commit.
    private static let quietTime = Duration.seconds(1)
    /// After a checkpoint that readers held up.
    private static let checkpointPause = Duration.milliseconds(100)
    private static let fileInterval = Duration.seconds(1)

    private let expiryInterval: Duration?
    private var nextFileLook: ContinuousClock.Instant
    private var nextExpiry: ContinuousClock.Instant?
    /// Not before this.
    private var checkpointAllowed: ContinuousClock.Instant
    /// Nil when the log is empty.
    private var quietCheckpoint: ContinuousClock.Instant?
    private var releasesPages = false
    /// Rows were dropped since the log was last emptied for it.
    private var hasRemoved = false

    init(retention: Retention, at now: ContinuousClock.Instant) {
        // A tenth of the time that tokens are kept is exact enough, and a minute often enough.
        expiryInterval = [retention.sinceWritten, retention.sinceExpired].compactMap(\.self).min()
            .map { min(max($0 / 10, .milliseconds(100)), .seconds(60)) }
        nextFileLook = now + Self.fileInterval
        nextExpiry = expiryInterval.map { _ in now }
        checkpointAllowed = now
        // What an earlier run has left in the log.
        quietCheckpoint = now + Self.quietTime
    }

    // MARK: - What happened

    mutating func noteCommit(at now: ContinuousClock.Instant) {
        quietCheckpoint = now + Self.quietTime
    }

    mutating func noteCheckpoint(isComplete: Bool, at now: ContinuousClock.Instant) {
        quietCheckpoint = isComplete ? nil : now + Self.quietTime
        checkpointAllowed = isComplete ? now : now + Self.checkpointPause
    }

    /// - Parameter isDone: Nothing is left to be dropped for now.
    mutating func noteExpiry(removed: Int, isDone: Bool, at now: ContinuousClock.Instant) {
        nextExpiry = isDone ? expiryInterval.map { now + $0 } : now
        if removed > 0 { (releasesPages, hasRemoved) = (true, true) }
        // Until then what was dropped can be read in the log.
        if isDone && hasRemoved { (quietCheckpoint, hasRemoved) = (now, false) }
    }

    mutating func noteReleasedPages(more: Bool, at now: ContinuousClock.Instant) {
        releasesPages = more
        if more { quietCheckpoint = now + Self.quietTime }
    }

    mutating func noteLookAfterFiles(at now: ContinuousClock.Instant) {
        nextFileLook = now + Self.fileInterval
    }

    // MARK: - What to do

    /// The step that is due; nil when there is none.
    func due(at now: ContinuousClock.Instant, logSize: Int, isIdle: Bool) -> Step? {
        if now >= checkpointAllowed {
            if logSize >= Self.largestLog { return .checkpoint }
            if isIdle && logSize >= Self.comfortableLog { return .checkpoint }
            if isIdle, let quietCheckpoint, now >= quietCheckpoint { return .checkpoint }
        }
        if now >= nextFileLook { return .lookAfterFiles }
        if let nextExpiry, now >= nextExpiry { return .expire }
        return isIdle && releasesPages ? .releasePages : nil
    }

    /// When to look again even if nothing comes in.
    var next: ContinuousClock.Instant {
        var next = nextFileLook
        if let nextExpiry { next = min(next, nextExpiry) }
        if let quietCheckpoint { next = min(next, max(quietCheckpoint, checkpointAllowed)) }
        return next
    }
}
